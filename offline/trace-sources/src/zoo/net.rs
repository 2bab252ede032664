//! Conversion of layers to the kernels of a training step.
//!
//! Layers are added in the order of the forward pass, each with its kernel. [`Net::finish`] adds
//! the backward pass, in reverse order. The gradients of the outputs of a layer are complete by
//! then, as all its users come later in the forward pass. Gradients from several layers are
//! accumulated in place.

use std::collections::HashMap;

use super::hardware::{Hardware, Work};
use trace::{
    draft::{Draft, DraftKernel},
    id::TensorId,
    iteration::{Role, Tensor},
};

pub(super) const ELEMENT_BYTES: u64 = 4;

/// Output of a layer, or an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Value {
    tensor: TensorId,
    elements: u64,
    /// Unique number, unlike the tensor's id, which an operation in place reuses.
    number: usize,
    /// Whether the value depends on a parameter, and so has a gradient.
    requires_grad: bool,
}

/// Trained parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Parameter(usize);

/// Key of a gradient: the value or parameter that it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum GradientKey {
    Value(usize),
    Parameter(Parameter),
}

#[derive(Clone, Copy, Debug)]
struct Gradient {
    tensor: TensorId,
    /// Whether several values share the gradient, so that it must not be changed in place.
    shared: bool,
}

/// Rule of the backward pass of a layer.
#[derive(Clone, Copy, Debug)]
enum Rule {
    /// y = x·W (+ b), or a convolution: one product for the gradient of the input, one for those of
    /// the parameters.
    Linear,
    /// y = a·b: one product for each gradient.
    Product,
    /// Element by element, or row by row: one kernel for all gradients.
    Pointwise,
    /// Element by element, with the output in the memory of the input.
    InPlace,
    /// Sum: the gradient of the output is that of both inputs.
    Sum,
}

#[derive(Debug)]
struct Layer {
    name: String,
    rule: Rule,
    inputs: Vec<Value>,
    parameters: Vec<Parameter>,
    outputs: Vec<Value>,
    /// Tensors that the backward pass reads besides gradients and parameters.
    saved: Vec<TensorId>,
    work: Work,
}

/// Tensors that a pointwise layer saves for the backward pass.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Saved {
    pub(super) inputs: bool,
    pub(super) output: bool,
    /// Size of another tensor: a mask, or means and variances.
    pub(super) extra_bytes: u64,
}

pub(super) struct Net<'a> {
    hardware: &'a Hardware,
    draft: Draft,
    layers: Vec<Layer>,
    /// Parameters: weight, elements and name.
    parameters: Vec<(TensorId, u64, String)>,
    values: usize,
    gradients: HashMap<GradientKey, Gradient>,
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

    fn value(&mut self, tensor: TensorId, elements: u64, requires_grad: bool) -> Value {
        self.values += 1;
        Value { tensor, elements, number: self.values, requires_grad }
    }

    /// Adds a kernel that reads or writes all bytes of its tensors once.
    fn kernel(&mut self, name: String, inputs: Vec<TensorId>, outputs: Vec<TensorId>, work: Work) {
        let bytes = |tensors: &[TensorId]| -> u64 {
            tensors.iter().filter_map(|id| self.draft.tensors.get(id.0 as usize)).map(|tensor| tensor.bytes).sum()
        };
        let traffic_bytes = bytes(&inputs) + bytes(&outputs);
        self.kernel_with_traffic(name, inputs, outputs, work, traffic_bytes);
    }

    fn kernel_with_traffic(
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

    /// Adds a batch of data.
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

    /// Adds the product of `x` with parameters, or a convolution, with the number of its
    /// multiplications.
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

    /// Adds the product of `a` and `b`.
    pub(super) fn product(&mut self, name: &str, a: Value, b: Value, elements: u64, multiplications: u64) -> Value {
        let work = Work { matmul_flops: 2.0 * multiplications as f64, vector_flops: 0.0 };
        self.layer(name, Rule::Product, &[a, b], &[], elements, vec![a.tensor, b.tensor], work)
    }

    /// Adds a pointwise layer, with `flops` for each element of its output.
    pub(super) fn pointwise(
        &mut self,
        name: &str,
        inputs: &[Value],
        parameters: &[Parameter],
        (elements, flops): (u64, u64),
        saves: Saved,
    ) -> Value {
        let mut saved_tensors = Vec::new();
        if saves.inputs {
            saved_tensors.extend(inputs.iter().map(|input| input.tensor));
        }
        if saves.extra_bytes > 0 {
            saved_tensors.push(self.tensor(&format!("{name}.kept"), saves.extra_bytes, Role::Activation));
        }
        let extra = if saves.extra_bytes > 0 { saved_tensors.last().copied() } else { None };
        let work = Work { matmul_flops: 0.0, vector_flops: (elements * flops) as f64 };
        let output = self.output(name, elements, inputs, parameters);
        if saves.output {
            saved_tensors.push(output.tensor);
        }
        let reads = self.reads(inputs, parameters);
        self.kernel(format!("{name}_forward"), reads, extra.into_iter().chain([output.tensor]).collect(), work);
        self.push(name, Rule::Pointwise, inputs, parameters, vec![output], saved_tensors, work);
        output
    }

    /// Adds a lookup of rows of a table. Only these rows are read; the backward pass writes a
    /// gradient of the whole table.
    pub(super) fn embedding(&mut self, name: &str, ids: Value, table: Parameter, elements: u64) -> Value {
        let output = self.output(name, elements, &[ids], &[table]);
        let reads = self.reads(&[ids], &[table]);
        let traffic_bytes = (2 * elements + ids.elements) * ELEMENT_BYTES;
        self.kernel_with_traffic(format!("{name}_forward"), reads, vec![output.tensor], Work::default(), traffic_bytes);
        self.push(name, Rule::Pointwise, &[ids], &[table], vec![output], vec![ids.tensor], Work::default());
        output
    }

    /// Adds max(x, 0), in place.
    pub(super) fn relu(&mut self, name: &str, x: Value) -> Value {
        let work = Work { matmul_flops: 0.0, vector_flops: x.elements as f64 };
        let output = self.value(x.tensor, x.elements, x.requires_grad);
        self.kernel(format!("{name}_forward"), vec![x.tensor], vec![x.tensor], work);
        self.push(name, Rule::InPlace, &[x], &[], vec![output], vec![x.tensor], work);
        output
    }

    pub(super) fn add(&mut self, name: &str, a: Value, b: Value) -> Value {
        let work = Work { matmul_flops: 0.0, vector_flops: a.elements as f64 };
        self.layer(name, Rule::Sum, &[a, b], &[], a.elements, Vec::new(), work)
    }

    /// Adds the distribution of the rows of values to several outputs.
    pub(super) fn scatter(&mut self, name: &str, inputs: &[Value], elements: &[u64]) -> Vec<Value> {
        let outputs: Vec<_> = elements.iter().map(|&elements| self.output(name, elements, inputs, &[])).collect();
        let reads = self.reads(inputs, &[]);
        let writes = outputs.iter().map(|output| output.tensor).collect();
        self.kernel(format!("{name}_forward"), reads, writes, Work::default());
        self.push(name, Rule::Pointwise, inputs, &[], outputs.clone(), Vec::new(), Work::default());
        outputs
    }

    /// Adds the loss, at which the backward pass begins.
    pub(super) fn loss(&mut self, name: &str, logits: Value, labels: Value) {
        const FLOPS: u64 = 5;
        let saves = Saved { output: true, ..Saved::default() };
        let logarithms = self.pointwise(&format!("{name}.softmax"), &[logits], &[], (logits.elements, FLOPS), saves);
        let gradient = self.tensor(&format!("{name}.gradient"), logits.elements * ELEMENT_BYTES, Role::Gradient);
        let work = Work { matmul_flops: 0.0, vector_flops: logits.elements as f64 };
        self.kernel(name.to_owned(), vec![logarithms.tensor, labels.tensor], vec![gradient], work);
        self.gradients.insert(GradientKey::Value(logarithms.number), Gradient { tensor: gradient, shared: false });
    }

    fn output(&mut self, name: &str, elements: u64, inputs: &[Value], parameters: &[Parameter]) -> Value {
        let tensor = self.tensor(name, elements * ELEMENT_BYTES, Role::Activation);
        let requires_grad = !parameters.is_empty() || inputs.iter().any(|input| input.requires_grad);
        self.value(tensor, elements, requires_grad)
    }

    fn reads(&self, inputs: &[Value], parameters: &[Parameter]) -> Vec<TensorId> {
        let weights = parameters.iter().filter_map(|&parameter| self.weight(parameter));
        inputs.iter().map(|input| input.tensor).chain(weights).collect()
    }

    #[expect(clippy::too_many_arguments, reason = "all are parts of a layer, which two functions make")]
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

    #[expect(clippy::too_many_arguments, reason = "all are parts of a layer")]
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

    /// Adds the backward pass and the updates, with `states` tensors of the optimizer for each
    /// parameter.
    pub(super) fn finish(mut self, states: usize) -> Draft {
        while let Some(layer) = self.layers.pop() {
            self.backward(&layer);
        }
        for (index, (weight, elements, name)) in std::mem::take(&mut self.parameters).into_iter().enumerate() {
            let Some(gradient) = self.gradients.get(&GradientKey::Parameter(Parameter(index))).copied() else {
                continue;
            };
            let states: Vec<_> = (0..states)
                .map(|state| {
                    self.tensor(&format!("{name}.state{state}"), elements * ELEMENT_BYTES, Role::OptimizerState)
                })
                .collect();
            let updated: Vec<_> = [weight].into_iter().chain(states).collect();
            let reads = [gradient.tensor].into_iter().chain(updated.iter().copied()).collect();
            let work = Work { matmul_flops: 0.0, vector_flops: 10.0 * elements as f64 };
            self.kernel(format!("{name}_update"), reads, updated, work);
        }
        self.draft
    }

    fn backward(&mut self, layer: &Layer) {
        let gradients =
            layer.outputs.iter().filter_map(|output| self.gradients.remove(&GradientKey::Value(output.number)));
        let gradients: Vec<_> = gradients.collect();
        let Some(&first) = gradients.first() else { return };
        let incoming: Vec<_> = gradients.iter().map(|gradient| gradient.tensor).collect();
        let weights = self.reads(&[], &layer.parameters);
        let differentiable: Vec<_> = layer.inputs.iter().copied().filter(|input| input.requires_grad).collect();
        let double_work = Work { matmul_flops: 0.0, vector_flops: 2.0 * layer.work.vector_flops };
        let name = &layer.name;
        match layer.rule {
            Rule::Linear => {
                let reads = [&incoming[..], &layer.saved].concat();
                self.backward_kernel(format!("{name}_backward_weight"), reads, &[], &layer.parameters, layer.work);
                let reads = [&incoming[..], &weights].concat();
                self.backward_kernel(format!("{name}_backward_input"), reads, &differentiable, &[], layer.work);
            }
            Rule::Product => {
                for (input, &other) in layer.inputs.iter().zip(layer.saved.iter().rev()) {
                    let reads = [&incoming[..], &[other]].concat();
                    self.backward_kernel(format!("{name}_backward"), reads, &[*input], &[], layer.work);
                }
            }
            Rule::Pointwise => {
                let reads = [&incoming[..], &layer.saved, &weights].concat();
                self.backward_kernel(
                    format!("{name}_backward"),
                    reads,
                    &differentiable,
                    &layer.parameters,
                    double_work,
                );
            }
            Rule::InPlace if !first.shared => {
                let reads = [&incoming[..], &layer.saved].concat();
                self.kernel(format!("{name}_backward"), reads, incoming, double_work);
                for input in differentiable {
                    self.accumulate(input, first);
                }
            }
            Rule::InPlace => {
                let reads = [&incoming[..], &layer.saved].concat();
                self.backward_kernel(format!("{name}_backward"), reads, &differentiable, &[], double_work);
            }
            Rule::Sum => {
                for &input in &differentiable {
                    self.accumulate(input, Gradient { tensor: first.tensor, shared: differentiable.len() > 1 });
                }
            }
        }
    }

    /// Adds an existing gradient to the gradient of a value.
    fn accumulate(&mut self, value: Value, gradient: Gradient) {
        let key = GradientKey::Value(value.number);
        let Some(before) = self.gradients.get(&key).copied() else {
            self.gradients.insert(key, gradient);
            return;
        };
        let tensor = if before.shared { self.new_gradient(value.elements) } else { before.tensor };
        let work = Work { matmul_flops: 0.0, vector_flops: value.elements as f64 };
        self.kernel("add_gradients".to_owned(), vec![before.tensor, gradient.tensor], vec![tensor], work);
        self.gradients.insert(key, Gradient { tensor, shared: false });
    }

    fn new_gradient(&mut self, elements: u64) -> TensorId {
        self.tensor("", elements * ELEMENT_BYTES, Role::Gradient)
    }

    /// Adds a kernel of the backward pass, which writes gradients, or adds to existing ones of
    /// parameters.
    fn backward_kernel(
        &mut self,
        name: String,
        mut reads: Vec<TensorId>,
        values: &[Value],
        parameters: &[Parameter],
        work: Work,
    ) {
        let mut writes = Vec::new();
        let mut value_gradients = Vec::new();
        for &value in values {
            let tensor = self.new_gradient(value.elements);
            writes.push(tensor);
            value_gradients.push((value, tensor));
        }
        for &parameter in parameters {
            let Some(&(_, elements, _)) = self.parameters.get(parameter.0) else { continue };
            let key = GradientKey::Parameter(parameter);
            if let Some(before) = self.gradients.get(&key).copied() {
                reads.push(before.tensor);
                writes.push(before.tensor);
            } else {
                let tensor = self.new_gradient(elements);
                self.gradients.insert(key, Gradient { tensor, shared: false });
                writes.push(tensor);
            }
        }
        if writes.is_empty() {
            return;
        }
        self.kernel(name, reads, writes, work);
        for (value, tensor) in value_gradients {
            self.accumulate(value, Gradient { tensor, shared: false });
        }
    }
}
