//! From layers to the kernels of a training step.
//!
//! Layers are added in the order of the forward pass, each with its kernel. [`Net::finish`] goes back through them: the gradients of what a layer gave are
//! complete by then, as all that used it came after. A gradient that comes from several layers is added up in place.

use std::collections::HashMap;

use super::hardware::{Hardware, Work};
use crate::{
    draft::{Draft, DraftKernel},
    id::TensorId,
    iteration::{Role, Tensor},
};

pub(super) const ELEMENT_BYTES: u64 = 4;

/// Something that a layer gave, or an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Value {
    tensor: TensorId,
    elements: u64,
    /// Apart from the tensor's id, which an operation in place gives again.
    number: usize,
    /// Something before it is trained.
    trained: bool,
}

/// Something that is trained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Parameter(usize);

/// A gradient, by what it is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Of {
    Value(usize),
    Parameter(Parameter),
}

#[derive(Clone, Copy, Debug)]
struct Gradient {
    tensor: TensorId,
    /// Several values have it: it must not be changed.
    shared: bool,
}

/// How a layer goes back.
#[derive(Clone, Copy, Debug)]
enum Rule {
    /// y = x·W (+ b), or a convolution: a product for the input, one for the parameters.
    Linear,
    /// y = a·b: a product for each.
    Product,
    /// Element by element, or row by row: one kernel for all gradients.
    Pointwise,
    /// The same, and what it gives lies where its input lay.
    InPlace,
    /// A sum: what comes back goes to both.
    Sum,
}

#[derive(Debug)]
struct Layer {
    name: String,
    rule: Rule,
    inputs: Vec<Value>,
    parameters: Vec<Parameter>,
    outputs: Vec<Value>,
    /// What the way back reads besides gradients and parameters.
    saved: Vec<TensorId>,
    work: Work,
}

/// What a pointwise layer keeps for the way back.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Keeps {
    pub(super) inputs: bool,
    pub(super) output: bool,
    /// Something else, of so many bytes: a mask, means and variances.
    pub(super) extra_bytes: u64,
}

pub(super) struct Net<'a> {
    hardware: &'a Hardware,
    draft: Draft,
    layers: Vec<Layer>,
    /// Weight and gradient.
    parameters: Vec<(TensorId, u64, String)>,
    values: usize,
    gradients: HashMap<Of, Gradient>,
}

impl<'a> Net<'a> {
    pub(super) fn new(hardware: &'a Hardware, name: String) -> Self {
        let draft = Draft { name, ..Draft::default() };
        Self { hardware, draft, layers: Vec::new(), parameters: Vec::new(), values: 0, gradients: HashMap::new() }
    }

    fn tensor(&mut self, name: &str, bytes: u64, role: Role) -> TensorId {
        let persistent = matches!(role, Role::Weight | Role::OptimizerState);
        self.draft.tensor(Tensor { name: name.to_owned(), bytes, role, persistent })
    }

    fn value(&mut self, tensor: TensorId, elements: u64, trained: bool) -> Value {
        self.values += 1;
        Value { tensor, elements, number: self.values, trained }
    }

    /// A kernel that moves the bytes of all its tensors once.
    fn kernel(&mut self, name: String, inputs: Vec<TensorId>, outputs: Vec<TensorId>, work: Work) {
        let bytes = |tensors: &[TensorId]| -> u64 {
            tensors.iter().filter_map(|id| self.draft.tensors.get(id.0 as usize)).map(|tensor| tensor.bytes).sum()
        };
        let moved = bytes(&inputs) + bytes(&outputs);
        self.kernel_that_moves(name, inputs, outputs, work, moved);
    }

    fn kernel_that_moves(
        &mut self,
        name: String,
        inputs: Vec<TensorId>,
        outputs: Vec<TensorId>,
        work: Work,
        bytes: u64,
    ) {
        let duration_ns = self.hardware.kernel_ns(work, bytes);
        self.draft.kernel(DraftKernel { name, duration_ns, inputs, outputs });
    }

    /// A batch of data.
    pub(super) fn input(&mut self, name: &str, elements: u64) -> Value {
        let tensor = self.tensor(name, elements * ELEMENT_BYTES, Role::Input);
        self.value(tensor, elements, false)
    }

    pub(super) fn parameter(&mut self, name: &str, elements: u64) -> Parameter {
        let tensor = self.tensor(name, elements * ELEMENT_BYTES, Role::Weight);
        self.parameters.push((tensor, elements, name.to_owned()));
        Parameter(self.parameters.len() - 1)
    }

    fn weight(&self, Parameter(index): Parameter) -> Option<TensorId> {
        self.parameters.get(index).map(|(tensor, ..)| *tensor)
    }

    /// `x` by parameters; `multiplications` are those of the product or convolution.
    pub(super) fn linear(
        &mut self,
        name: &str,
        x: Value,
        parameters: &[Parameter],
        elements: u64,
        multiplications: u64,
    ) -> Value {
        let work = Work { matmul_flops: 2.0 * multiplications as f64, vector_flops: 0.0 };
        self.layer(name, Rule::Linear, &[x], parameters, elements, vec![x.tensor], work)
    }

    /// `a` by `b`.
    pub(super) fn product(&mut self, name: &str, a: Value, b: Value, elements: u64, multiplications: u64) -> Value {
        let work = Work { matmul_flops: 2.0 * multiplications as f64, vector_flops: 0.0 };
        self.layer(name, Rule::Product, &[a, b], &[], elements, vec![a.tensor, b.tensor], work)
    }

    /// Anything that does `flops` for each element that it gives.
    pub(super) fn pointwise(
        &mut self,
        name: &str,
        inputs: &[Value],
        parameters: &[Parameter],
        (elements, flops): (u64, u64),
        keeps: Keeps,
    ) -> Value {
        let mut saved = Vec::new();
        if keeps.inputs {
            saved.extend(inputs.iter().map(|input| input.tensor));
        }
        if keeps.extra_bytes > 0 {
            saved.push(self.tensor(&format!("{name}.kept"), keeps.extra_bytes, Role::Activation));
        }
        let extra = if keeps.extra_bytes > 0 { saved.last().copied() } else { None };
        let work = Work { matmul_flops: 0.0, vector_flops: (elements * flops) as f64 };
        let output = self.output(name, elements, inputs, parameters);
        if keeps.output {
            saved.push(output.tensor);
        }
        let reads = self.reads(inputs, parameters);
        self.kernel(format!("{name}_forward"), reads, extra.into_iter().chain([output.tensor]).collect(), work);
        self.push(name, Rule::Pointwise, inputs, parameters, vec![output], saved, work);
        output
    }

    /// Rows of a table, by numbers. Only those are read; the way back makes a gradient of the whole table.
    pub(super) fn embedding(&mut self, name: &str, ids: Value, table: Parameter, elements: u64) -> Value {
        let output = self.output(name, elements, &[ids], &[table]);
        let reads = self.reads(&[ids], &[table]);
        let moved = (2 * elements + ids.elements) * ELEMENT_BYTES;
        self.kernel_that_moves(format!("{name}_forward"), reads, vec![output.tensor], Work::default(), moved);
        self.push(name, Rule::Pointwise, &[ids], &[table], vec![output], vec![ids.tensor], Work::default());
        output
    }

    /// max(x, 0), where x lay.
    pub(super) fn relu(&mut self, name: &str, x: Value) -> Value {
        let work = Work { matmul_flops: 0.0, vector_flops: x.elements as f64 };
        let output = self.value(x.tensor, x.elements, x.trained);
        self.kernel(format!("{name}_forward"), vec![x.tensor], vec![x.tensor], work);
        self.push(name, Rule::InPlace, &[x], &[], vec![output], vec![x.tensor], work);
        output
    }

    pub(super) fn add(&mut self, name: &str, a: Value, b: Value) -> Value {
        let work = Work { matmul_flops: 0.0, vector_flops: a.elements as f64 };
        self.layer(name, Rule::Sum, &[a, b], &[], a.elements, Vec::new(), work)
    }

    /// One value as several, row by row.
    pub(super) fn scatter(&mut self, name: &str, inputs: &[Value], elements: &[u64]) -> Vec<Value> {
        let outputs: Vec<_> = elements.iter().map(|&elements| self.output(name, elements, inputs, &[])).collect();
        let reads = self.reads(inputs, &[]);
        let writes = outputs.iter().map(|output| output.tensor).collect();
        self.kernel(format!("{name}_forward"), reads, writes, Work::default());
        self.push(name, Rule::Pointwise, inputs, &[], outputs.clone(), Vec::new(), Work::default());
        outputs
    }

    /// How far off a prediction is: where the way back begins.
    pub(super) fn loss(&mut self, name: &str, logits: Value, labels: Value) {
        const FLOPS: u64 = 5;
        let keeps = Keeps { output: true, ..Keeps::default() };
        let logarithms = self.pointwise(&format!("{name}.softmax"), &[logits], &[], (logits.elements, FLOPS), keeps);
        let gradient = self.tensor(&format!("{name}.gradient"), logits.elements * ELEMENT_BYTES, Role::Gradient);
        let work = Work { matmul_flops: 0.0, vector_flops: logits.elements as f64 };
        self.kernel(name.to_owned(), vec![logarithms.tensor, labels.tensor], vec![gradient], work);
        self.gradients.insert(Of::Value(logarithms.number), Gradient { tensor: gradient, shared: false });
    }

    fn output(&mut self, name: &str, elements: u64, inputs: &[Value], parameters: &[Parameter]) -> Value {
        let tensor = self.tensor(name, elements * ELEMENT_BYTES, Role::Activation);
        let trained = !parameters.is_empty() || inputs.iter().any(|input| input.trained);
        self.value(tensor, elements, trained)
    }

    fn reads(&self, inputs: &[Value], parameters: &[Parameter]) -> Vec<TensorId> {
        let weights = parameters.iter().filter_map(|&parameter| self.weight(parameter));
        inputs.iter().map(|input| input.tensor).chain(weights).collect()
    }

    #[expect(clippy::too_many_arguments, reason = "a layer is all of them, and two places make one")]
    fn push(
        &mut self,
        name: &str,
        rule: Rule,
        inputs: &[Value],
        parameters: &[Parameter],
        outputs: Vec<Value>,
        saved: Vec<TensorId>,
        work: Work,
    ) {
        let (inputs, parameters) = (inputs.to_vec(), parameters.to_vec());
        self.layers.push(Layer { name: name.to_owned(), rule, inputs, parameters, outputs, saved, work });
    }

    #[expect(clippy::too_many_arguments, reason = "a layer is all of them")]
    fn layer(
        &mut self,
        name: &str,
        rule: Rule,
        inputs: &[Value],
        parameters: &[Parameter],
        elements: u64,
        saved: Vec<TensorId>,
        work: Work,
    ) -> Value {
        let output = self.output(name, elements, inputs, parameters);
        let reads = self.reads(inputs, parameters);
        self.kernel(format!("{name}_forward"), reads, vec![output.tensor], work);
        self.push(name, rule, inputs, parameters, vec![output], saved, work);
        output
    }

    /// The way back and the update, with so many states of the optimizer for each parameter.
    pub(super) fn finish(mut self, states: usize) -> Draft {
        while let Some(layer) = self.layers.pop() {
            self.back(&layer);
        }
        for (index, (weight, elements, name)) in std::mem::take(&mut self.parameters).into_iter().enumerate() {
            let Some(gradient) = self.gradients.get(&Of::Parameter(Parameter(index))).copied() else { continue };
            let states: Vec<_> = (0..states)
                .map(|state| {
                    self.tensor(&format!("{name}.state{state}"), elements * ELEMENT_BYTES, Role::OptimizerState)
                })
                .collect();
            let changes: Vec<_> = [weight].into_iter().chain(states).collect();
            let reads = [gradient.tensor].into_iter().chain(changes.iter().copied()).collect();
            let work = Work { matmul_flops: 0.0, vector_flops: 10.0 * elements as f64 };
            self.kernel(format!("{name}_update"), reads, changes, work);
        }
        self.draft
    }

    fn back(&mut self, layer: &Layer) {
        let gradients = layer.outputs.iter().filter_map(|output| self.gradients.remove(&Of::Value(output.number)));
        let gradients: Vec<_> = gradients.collect();
        let Some(&first) = gradients.first() else { return };
        let incoming: Vec<_> = gradients.iter().map(|gradient| gradient.tensor).collect();
        let weights = self.reads(&[], &layer.parameters);
        let trained: Vec<_> = layer.inputs.iter().copied().filter(|input| input.trained).collect();
        let double = Work { matmul_flops: 0.0, vector_flops: 2.0 * layer.work.vector_flops };
        let name = &layer.name;
        match layer.rule {
            Rule::Linear => {
                let reads = [&incoming[..], &layer.saved].concat();
                self.emit(format!("{name}_backward_weight"), reads, &[], &layer.parameters, layer.work);
                let reads = [&incoming[..], &weights].concat();
                self.emit(format!("{name}_backward_input"), reads, &trained, &[], layer.work);
            }
            Rule::Product => {
                for (input, &other) in layer.inputs.iter().zip(layer.saved.iter().rev()) {
                    let reads = [&incoming[..], &[other]].concat();
                    self.emit(format!("{name}_backward"), reads, &[*input], &[], layer.work);
                }
            }
            Rule::Pointwise => {
                let reads = [&incoming[..], &layer.saved, &weights].concat();
                self.emit(format!("{name}_backward"), reads, &trained, &layer.parameters, double);
            }
            Rule::InPlace if !first.shared => {
                let reads = [&incoming[..], &layer.saved].concat();
                self.kernel(format!("{name}_backward"), reads, incoming, double);
                for input in trained {
                    self.give(input, first);
                }
            }
            Rule::InPlace => {
                let reads = [&incoming[..], &layer.saved].concat();
                self.emit(format!("{name}_backward"), reads, &trained, &[], double);
            }
            Rule::Sum => {
                for &input in &trained {
                    self.give(input, Gradient { tensor: first.tensor, shared: trained.len() > 1 });
                }
            }
        }
    }

    /// A gradient that is there already is the gradient of a value too.
    fn give(&mut self, value: Value, gradient: Gradient) {
        let of = Of::Value(value.number);
        let Some(before) = self.gradients.get(&of).copied() else {
            self.gradients.insert(of, gradient);
            return;
        };
        let tensor = if before.shared { self.gradient_of(value.elements) } else { before.tensor };
        let work = Work { matmul_flops: 0.0, vector_flops: value.elements as f64 };
        self.kernel("add_gradients".to_owned(), vec![before.tensor, gradient.tensor], vec![tensor], work);
        self.gradients.insert(of, Gradient { tensor, shared: false });
    }

    fn gradient_of(&mut self, elements: u64) -> TensorId {
        self.tensor("", elements * ELEMENT_BYTES, Role::Gradient)
    }

    /// A kernel of the way back that makes gradients, or adds to those of parameters that are there already.
    fn emit(&mut self, name: String, mut reads: Vec<TensorId>, values: &[Value], parameters: &[Parameter], work: Work) {
        let mut writes = Vec::new();
        let mut made = Vec::new();
        for &value in values {
            let tensor = self.gradient_of(value.elements);
            writes.push(tensor);
            made.push((value, tensor));
        }
        for &parameter in parameters {
            let Some(&(_, elements, _)) = self.parameters.get(parameter.0) else { continue };
            let of = Of::Parameter(parameter);
            if let Some(before) = self.gradients.get(&of).copied() {
                reads.push(before.tensor);
                writes.push(before.tensor);
            } else {
                let tensor = self.gradient_of(elements);
                self.gradients.insert(of, Gradient { tensor, shared: false });
                writes.push(tensor);
            }
        }
        if writes.is_empty() {
            return;
        }
        self.kernel(name, reads, writes, work);
        for (value, tensor) in made {
            self.give(value, Gradient { tensor, shared: false });
        }
    }
}
