//! Choice of what compiles an instruction.

use super::Compiler;
use super::form::Form;
use super::half::is_half;
use crate::PtxError;
use crate::ast::Instruction;
use crate::machine::program::Action;
use crate::types::Type;

impl Compiler<'_> {
    /// Compiles an instruction.
    pub(super) fn instruction(&mut self, instruction: &Instruction) -> Result<(), PtxError> {
        self.line = instruction.line;
        self.guard = match &instruction.guard {
            None => (0, false),
            Some((name, negated)) => (self.predicate(&crate::ast::Operand::Symbol(name.clone()))?.0, *negated),
        };
        let mut form = Form::new(instruction);
        self.form(&mut form)
    }

    fn form(&mut self, form: &mut Form<'_>) -> Result<(), PtxError> {
        let of = form.last_type();
        let half = of.is_some_and(is_half);
        let float = matches!(of, Some(Type::F32 | Type::F64));
        match form.opcode {
            "add" | "sub" | "mul" | "fma" | "min" | "max" | "abs" | "neg" | "tanh" | "ex2" if half => self.half(form),
            "add" | "sub" | "mul" if float => self.float_binary(form),
            "fma" | "mad" if float => self.float_fma(form),
            "div" if float => self.float_divide(form),
            "rcp" | "sqrt" | "rsqrt" | "sin" | "cos" | "lg2" | "ex2" | "tanh" if float => self.float_function(form),
            "abs" | "neg" if float => self.float_unary(form),
            "min" | "max" if float => self.float_extremum(form),
            "copysign" => self.copy_sign(form),
            "testp" => self.test_property(form),
            "add" | "sub" | "min" | "max" | "div" | "rem" => self.integer_binary(form),
            "abs" | "neg" => self.integer_unary(form),
            "mul" | "mad" => self.integer_multiply(form),
            "mul24" | "mad24" => self.multiply24(form),
            "sad" => self.difference(form),
            "dp4a" | "dp2a" => self.dot_product(form),
            "addc" | "subc" => self.add_with_carry(form, true, false),
            "madc" => {
                let part = form.require(&["lo", "hi"])?;
                self.multiply_with_carry(form, part, true, false)
            }
            "and" | "or" | "xor" => self.logic(form),
            "not" | "cnot" => self.not(form),
            "shl" | "shr" => self.shift(form),
            "shf" => self.funnel_shift(form),
            "vadd4" | "vsub4" | "vavrg4" | "vabsdiff4" | "vmin4" | "vmax4" | "vset4" | "vadd2" | "vsub2" | "vavrg2"
            | "vabsdiff2" | "vmin2" | "vmax2" | "vset2" => self.video(form),
            "popc" | "clz" | "brev" | "bfind" => self.bit_count(form),
            "bfe" | "bfi" => self.bit_field(form),
            "szext" | "bmsk" => self.extend(form),
            "lop3" => self.three_way(form),
            "prmt" => self.byte_permute(form),
            "setp" => self.set_predicate(form),
            "set" => self.set(form),
            "selp" => self.select(form),
            "slct" => self.select_by_sign(form),
            "cvt" => self.convert(form),
            "mov" => self.transfer(form),
            "cvta" => self.convert_address(form),
            "isspacep" => self.is_in_space(form),
            "ld" | "ldu" | "st" => self.load_or_store(form),
            "cp" => self.copy_async(form),
            "atom" | "red" => self.atomic(form),
            "shfl" => self.shuffle(form),
            "vote" => self.vote(form),
            "match" => self.match_values(form),
            "mma" => self.multiply_accumulate(form),
            "wmma" => self.warp_matrix(form),
            "ldmatrix" | "stmatrix" => self.matrices(form),
            "movmatrix" => self.transpose(form),
            "redux" => self.reduce(form),
            "activemask" => self.active_mask(form),
            "bra" => self.branch(form),
            "brx" => self.indexed_branch(form),
            "call" => self.call(form),
            "bar" | "barrier" => self.barrier(form),
            "membar" | "fence" => self.fence(form),
            "ret" => self.plain(form, Action::Return),
            "exit" => self.plain(form, Action::Exit),
            "trap" => self.plain(form, Action::Trap),
            "nanosleep" => {
                self.emit(Action::Yield);
                Ok(())
            }
            "prefetch" | "prefetchu" | "discard" | "applypriority" | "brkpt" => Ok(()),
            _ => Err(form.unknown()),
        }
    }

    fn plain(&mut self, form: &mut Form<'_>, action: Action) -> Result<(), PtxError> {
        form.take("uni");
        let [] = form.operands()?;
        self.emit(action);
        Ok(())
    }
}
