//! Products of matrices that a warp has in its registers: `mma`, `wmma`, and what loads and stores
//! their fragments.
//!
//! Sums are of exact products, rounded once, where a GPU's tensor core rounds in an order that no
//! document states.

mod eights;
mod fragment;
mod multiply;
mod tile;

use super::Compiler;
use super::form::Form;
use super::memory::elements;
use crate::PtxError;
use crate::ast::Operand;
use fragment::{Element, Fragment, Part, Shape};

/// Types of a product's matrices.
#[derive(Clone, Copy)]
struct Elements {
    a: Element,
    b: Element,
    c: Element,
    d: Element,
}

const MMA_SHAPES: [&str; 6] = ["m8n8k4", "m8n8k16", "m16n8k4", "m16n8k8", "m16n8k16", "m16n8k32"];
const WMMA_SHAPES: [&str; 5] = ["m16n16k16", "m32n8k16", "m8n32k16", "m16n16k8", "m8n8k4"];

impl Compiler<'_> {
    /// Compiles `mma`.
    pub(super) fn multiply_accumulate(&mut self, form: &mut Form<'_>) -> Result<(), PtxError> {
        let shape = Shape::take(form, &MMA_SHAPES)?;
        if !(form.take("row") && form.take("col")) {
            return Err(form.unknown());
        }
        let elements = elements_of(form, false)?;
        let known = matches!(
            (elements.a, shape.m, shape.k),
            (Element::F16 | Element::Bf16, 16, 8 | 16)
                | (Element::Tf32, 16, 4 | 8)
                | (Element::F64, 8, 4)
                | (Element::S8 | Element::U8, 8, 16)
                | (Element::S8 | Element::U8, 16, 16 | 32)
        );
        if !known {
            return Err(form.unknown());
        }
        self.product(form, shape, elements, false)
    }

    /// Compiles `wmma`.
    pub(super) fn warp_matrix(&mut self, form: &mut Form<'_>) -> Result<(), PtxError> {
        let operation = form.require(&["load", "store", "mma"])?;
        let shape = Shape::take(form, &WMMA_SHAPES)?;
        if operation != "mma" {
            return self.warp_matrix_transfer(form, shape, operation == "load");
        }
        // Fragments have their matrices' elements whichever way these lie in memory.
        form.ignore(&["row", "col"]);
        let elements = elements_of(form, true)?;
        if !shape.is_of_warp_matrix(elements.a) {
            return Err(form.unknown());
        }
        self.product(form, shape, elements, true)
    }

    fn product(
        &mut self,
        form: &mut Form<'_>,
        shape: Shape,
        elements: Elements,
        doubled: bool,
    ) -> Result<(), PtxError> {
        let finite = form.take("satfinite");
        // The nearest, of `f64`.
        form.take("rn");
        if !(form.take("sync") && form.take("aligned")) {
            return Err(form.unknown());
        }
        let [d, a, b, c] = form.operands()?;
        let a = self.fragment(form, a, Fragment::new(shape, Part::A, elements.a, doubled), false)?;
        let b = self.fragment(form, b, Fragment::new(shape, Part::B, elements.b, doubled), false)?;
        let c = self.fragment(form, c, Fragment::new(shape, Part::C, elements.c, false), false)?;
        let d = self.fragment(form, d, Fragment::new(shape, Part::C, elements.d, false), true)?;
        let work = multiply::work(shape, [a, b, c, d], finite).ok_or_else(|| form.unknown())?;
        self.emit_warp_sync(work)
    }

    /// Registers of a fragment.
    fn fragment(
        &mut self,
        form: &Form<'_>,
        operand: &Operand,
        mut fragment: Fragment,
        result: bool,
    ) -> Result<Fragment, PtxError> {
        let of = fragment.element.register();
        for operand in elements(form, operand, fragment.stored)? {
            let register = if result { self.destination(operand, of)? } else { self.source(operand, of)? };
            fragment.registers.push(register);
        }
        Ok(fragment)
    }
}

/// Types of `.d.a.b.c`, or of `.d.c` where halves are multiplied, as `wmma` has it: `short`.
fn elements_of(form: &mut Form<'_>, short: bool) -> Result<Elements, PtxError> {
    // The interpreter has no registers of the type `tf32`: in `.f32.tf32.tf32.f32` it is a modifier.
    let (types, multiplied) = (form.types(), form.take("tf32") && form.take("tf32"));
    let element = |of| Element::of(of).ok_or_else(|| form.unknown());
    Ok(match types {
        Ok([d, c]) if multiplied => Elements { a: Element::Tf32, b: Element::Tf32, c: element(c)?, d: element(d)? },
        Ok([d, c]) if short => Elements { a: Element::F16, b: Element::F16, c: element(c)?, d: element(d)? },
        _ if multiplied => return Err(form.unknown()),
        _ => {
            let [d, a, b, c] = form.types()?;
            Elements { a: element(a)?, b: element(b)?, c: element(c)?, d: element(d)? }
        }
    })
}
