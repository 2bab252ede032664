//! Modules: texts, linked and placed.

use std::sync::Arc;

use crate::LinkError;
use crate::compile::compile;
use crate::kernel::Kernel;
use crate::link::{Symbols, Variable};
use crate::text::Ptx;

/// Links texts into one module; of weak symbols the first definition counts.
///
/// # Errors
/// Symbols that are undefined or defined twice.
pub fn link(texts: Vec<Ptx>) -> Result<Linked, LinkError> {
    let symbols = crate::link::link(texts)?;
    let variables = symbols.variables();
    Ok(Linked { symbols, variables })
}

/// Linked module whose variables have no addresses yet.
#[derive(Debug)]
pub struct Linked {
    symbols: Symbols,
    variables: Vec<Variable>,
}

impl Linked {
    /// Variables that need an address, in the order that [`Linked::place`] takes them.
    #[must_use]
    pub fn variables(&self) -> &[Variable] {
        &self.variables
    }

    /// Gives the variables their global addresses, and compiles all functions.
    ///
    /// # Errors
    /// An instruction that the interpreter lacks.
    pub fn place(mut self, addresses: &[u64]) -> Result<Module, LinkError> {
        self.symbols.place(addresses);
        let initial = self.symbols.initial_contents()?;
        let initial = initial.into_iter().map(|(index, bytes)| (self.symbols.address(index), bytes)).collect();
        let mut kernels = Vec::new();
        for (index, found) in self.symbols.functions.iter().enumerate() {
            if found.function.entry && found.function.body.is_some() {
                let (program, _) = compile(&self.symbols, index)?;
                kernels.push(Arc::new(Kernel::new(&found.function, program)));
            }
        }
        Ok(Module { symbols: self.symbols, variables: self.variables, kernels, initial })
    }
}

/// Module that is ready to run.
#[derive(Debug)]
pub struct Module {
    symbols: Symbols,
    variables: Vec<Variable>,
    kernels: Vec<Arc<Kernel>>,
    initial: Vec<(u64, Vec<u8>)>,
}

impl Module {
    /// Kernels by name, in the order of the text.
    #[must_use]
    pub fn kernels(&self) -> &[Arc<Kernel>] {
        &self.kernels
    }

    /// A variable, and its address.
    #[must_use]
    pub fn variable(&self, name: &str) -> Option<(&Variable, u64)> {
        let index = self.variables.iter().position(|variable| variable.name == name)?;
        Some((self.variables.get(index)?, self.symbols.address(index)))
    }

    /// Initial contents of the variables, with addresses of other symbols put in: global address
    /// and bytes of each. Variables without an initializer are zero.
    #[must_use]
    pub fn initial_contents(&self) -> &[(u64, Vec<u8>)] {
        &self.initial
    }
}
