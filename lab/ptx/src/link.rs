//! Linking of texts into one module.

use std::collections::HashMap;

use crate::LinkError;
use crate::ast::{Contents, Declaration, Function, Initial, Linkage, Operand, Space, Statement};
use crate::machine::FUNCTION_WINDOW;
use crate::text::Ptx;

/// Functions that the driver defines.
const BUILTINS: [&str; 4] = ["vprintf", "__assertfail", "malloc", "free"];

/// What a name with module scope stands for: an index in [`Symbols`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Symbol {
    Variable(usize),
    Function(usize),
    Shared(usize),
}

/// Variable of the `.global` or `.const` space with module scope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Name.
    pub name: String,
    /// Size.
    pub bytes: u64,
    /// Alignment.
    pub align_bytes: u64,
    /// In the `.const` space.
    pub constant: bool,
    /// In managed memory, which CPU and GPUs access.
    pub managed: bool,
}

/// Function, with the text that it comes from.
#[derive(Debug)]
pub(crate) struct LinkedFunction {
    pub(crate) text: usize,
    pub(crate) function: Function,
}

/// All symbols of a module.
#[derive(Debug, Default)]
pub(crate) struct Symbols {
    /// Names, for each text.
    names: Vec<HashMap<String, Symbol>>,
    pub(crate) functions: Vec<LinkedFunction>,
    /// Variables of the `.shared` space; those without a size are dynamic.
    pub(crate) shared: Vec<Declaration>,
    /// Variables that have an address, with the text that their initializer is of.
    variables: Vec<(usize, Declaration)>,
    addresses: Vec<u64>,
}

impl Symbols {
    pub(crate) fn find(&self, text: usize, name: &str) -> Option<Symbol> {
        self.names.get(text)?.get(name).copied()
    }

    pub(crate) fn address(&self, variable: usize) -> u64 {
        self.addresses.get(variable).copied().unwrap_or_default()
    }

    pub(crate) fn place(&mut self, addresses: &[u64]) {
        self.addresses = addresses.to_vec();
    }

    pub(crate) fn variables(&self) -> Vec<Variable> {
        let variable = |(_, declaration): &(usize, Declaration)| Variable {
            name: declaration.name.clone(),
            bytes: declaration.bytes,
            align_bytes: declaration.align_bytes,
            constant: declaration.space == Space::Constant,
            managed: declaration.managed,
        };
        self.variables.iter().map(variable).collect()
    }

    /// Contents of the variables that have an initializer: index, and bytes.
    pub(crate) fn initial_contents(&self) -> Result<Vec<(usize, Vec<u8>)>, LinkError> {
        let mut contents = Vec::new();
        for (index, (text, variable)) in self.variables.iter().enumerate() {
            if variable.initial.is_empty() {
                continue;
            }
            let mut bytes = Vec::new();
            for part in &variable.initial {
                match part {
                    Initial::Bytes(part) => bytes.extend_from_slice(part),
                    Initial::Address { symbol, offset, shift_bits, bytes: size } => {
                        let base = match self.find(*text, symbol) {
                            Some(Symbol::Variable(variable)) => self.address(variable),
                            Some(Symbol::Function(function)) => FUNCTION_WINDOW + function as u64,
                            _ => return Err(LinkError::Undefined(symbol.clone())),
                        };
                        let value = base.wrapping_add_signed(*offset).checked_shr(*shift_bits).unwrap_or(0);
                        bytes.extend(value.to_le_bytes().iter().chain(&[0; 8]).take(*size));
                    }
                }
            }
            bytes.resize(variable.bytes as usize, 0);
            contents.push((index, bytes));
        }
        Ok(contents)
    }

    fn add(&mut self, text: usize, variable: Option<Declaration>, function: Option<Function>) -> Option<Symbol> {
        if let Some(function) = function {
            self.functions.push(LinkedFunction { text, function });
            return Some(Symbol::Function(self.functions.len() - 1));
        }
        let variable = variable?;
        if variable.space == Space::Shared {
            self.shared.push(variable);
            return Some(Symbol::Shared(self.shared.len() - 1));
        }
        self.variables.push((text, variable));
        Some(Symbol::Variable(self.variables.len() - 1))
    }
}

/// Links texts; of weak symbols the first definition counts.
pub(crate) fn link(texts: Vec<Ptx>) -> Result<Symbols, LinkError> {
    let mut symbols = Symbols::default();
    // Symbols that other texts see, and whether they are weak.
    let mut public: HashMap<String, (Symbol, bool)> = HashMap::new();
    let mut wanted: Vec<(usize, String)> = Vec::new();
    for (text, ptx) in texts.into_iter().enumerate() {
        let Contents { variables, functions } = ptx.contents;
        symbols.names.push(HashMap::new());
        let variables =
            variables.into_iter().map(|variable| (variable.name.clone(), variable.linkage, Some(variable), None));
        let functions =
            functions.into_iter().map(|function| (function.name.clone(), function.linkage, None, Some(function)));
        for (name, linkage, variable, function) in variables.chain(functions) {
            let dynamic = variable.as_ref().is_some_and(|variable: &Declaration| variable.space == Space::Shared);
            let declared = linkage == Linkage::Extern && !dynamic
                || function.as_ref().is_some_and(|function: &Function| function.body.is_none());
            if declared {
                if BUILTINS.contains(&name.as_str()) {
                    let symbol = symbols.add(text, variable, function);
                    symbols.bind(text, name, symbol)?;
                } else {
                    wanted.push((text, name));
                }
                continue;
            }
            if linkage == Linkage::Internal || dynamic {
                let symbol = symbols.add(text, variable, function);
                symbols.bind(text, name, symbol)?;
                continue;
            }
            let weak = linkage == Linkage::Weak;
            match public.get(&name) {
                Some(&(symbol, _)) if weak => symbols.bind(text, name, Some(symbol))?,
                Some((_, false)) => return Err(LinkError::Duplicate(name)),
                Some(&(symbol, true)) => {
                    // The strong definition replaces the weak one, at the same index.
                    symbols.replace(symbol, text, variable, function);
                    public.insert(name.clone(), (symbol, false));
                    symbols.bind(text, name, Some(symbol))?;
                }
                None => {
                    if let Some(symbol) = symbols.add(text, variable, function) {
                        public.insert(name.clone(), (symbol, weak));
                        symbols.bind(text, name, Some(symbol))?;
                    }
                }
            }
        }
    }
    for (text, name) in wanted {
        if symbols.find(text, &name).is_some() {
            continue;
        }
        match public.get(&name) {
            Some(&(symbol, _)) => symbols.bind(text, name, Some(symbol))?,
            None if symbols.uses(text, &name) => return Err(LinkError::Undefined(name)),
            None => {}
        }
    }
    Ok(symbols)
}

impl Symbols {
    fn bind(&mut self, text: usize, name: String, symbol: Option<Symbol>) -> Result<(), LinkError> {
        let (Some(names), Some(symbol)) = (self.names.get_mut(text), symbol) else { return Ok(()) };
        match names.insert(name.clone(), symbol) {
            Some(old) if old != symbol => Err(LinkError::Duplicate(name)),
            _ => Ok(()),
        }
    }

    fn replace(&mut self, symbol: Symbol, text: usize, variable: Option<Declaration>, function: Option<Function>) {
        match (symbol, variable, function) {
            (Symbol::Function(index), _, Some(function)) => {
                if let Some(place) = self.functions.get_mut(index) {
                    *place = LinkedFunction { text, function };
                }
            }
            (Symbol::Variable(index), Some(variable), _) => {
                if let Some(place) = self.variables.get_mut(index) {
                    *place = (text, variable);
                }
            }
            _ => {}
        }
    }

    /// Tells whether a text names a symbol in a body or an initializer.
    fn uses(&self, text: usize, name: &str) -> bool {
        let in_operand = |operand: &Operand| match operand {
            Operand::Symbol(symbol) | Operand::Sum(symbol, _) | Operand::Address(Some(symbol), _) => symbol == name,
            _ => false,
        };
        let in_statement = |statement: &Statement| match statement {
            Statement::Instruction(instruction) => instruction.operands.iter().any(in_operand),
            _ => false,
        };
        let mut functions = self.functions.iter().filter(|function| function.text == text);
        functions.any(|function| function.function.body.iter().flatten().any(in_statement))
            || self.variables.iter().filter(|variable| variable.0 == text).any(|(_, variable)| {
                variable.initial.iter().any(|part| matches!(part, Initial::Address { symbol, .. } if symbol == name))
            })
    }
}
