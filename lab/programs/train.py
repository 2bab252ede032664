#!/usr/bin/env python3
"""Trains a network with tinygrad, unmodified, and prints a line of JSON for each iteration.

    train.py mlp|deep|cnn|alexnet|transformer [--layers N] [--iterations N] [--validate-every N] [--batch-change-at N] [--managed] [--hold]

The loss is printed by its bits, so that two runs can be compared to the last of them. Iterations go on
until SIGTERM without --iterations. The data depend on nothing but the program. Two options have iterations
differ: a validation pass behind every Nth, and batches of twice the size from iteration N on. --managed
allocates managed memory where tinygrad asks for device memory.
"""
import argparse
import json
import signal
import sys
import time

from tinygrad import Context, Tensor, TinyJit, dtypes, nn


def numbers(count, step, modulus):
    """Numbers from -1 to 1 in a fixed order."""
    return [(index * step % modulus) / (modulus / 2) - 1.0 for index in range(count)]


def weights(outputs, inputs):
    """Initial weights of a linear layer by a few instructions each; tinygrad's random numbers take 140."""
    # Added to a tensor of the device, so that they are computed there.
    index = Tensor([0]) + Tensor.arange(outputs * inputs)
    # As He and others have it for layers before a rectifier: what goes through many of them neither vanishes nor grows.
    scale = (6 / inputs) ** 0.5
    values = (index % 2003 * 7919 % 2003).cast(dtypes.float) * (scale / 1001) - scale
    return values.reshape(outputs, inputs).contiguous().realize()


class Mlp:
    """Perceptron whose first layer has most of the memory: parameter, gradient and Adam's two moments."""

    batch, inputs, width, classes = 2, 1024, 640, 10
    rate = 0.001

    def __init__(self, _layers):
        self.first = nn.Linear(self.inputs, self.width, bias=False)
        self.first.weight = weights(self.width, self.inputs)
        self.second = nn.Linear(self.width, self.classes, bias=False)

    def __call__(self, batch):
        return self.second(self.first(batch).relu())

    def data(self, batch):
        return Tensor(numbers(batch * self.inputs, 7919, 2000)).reshape(batch, self.inputs)


def linear_layers(inputs, width, count):
    """Linear layers that narrow and widen in turn."""
    sizes = [(width, inputs), (inputs, width)] * (count // 2)
    layers = [nn.Linear(inputs, outputs, bias=False) for outputs, inputs in sizes]
    for layer, size in zip(layers, sizes):
        layer.weight = weights(*size)
    return layers


class Deep:
    """Perceptron of layers of 2 MiB each, so that no kernel uses much of its memory."""

    batch, inputs, width, layers, classes = 1, 1024, 512, 6, 10
    # Low, so that the loss of each iteration is another one.
    rate = 1e-5

    def __init__(self, layers):
        self.hidden = linear_layers(self.inputs, self.width, layers or self.layers)
        self.last = nn.Linear(self.inputs, self.classes, bias=False)

    def __call__(self, batch):
        for layer in self.hidden:
            batch = layer(batch).relu()
        return self.last(batch)

    def data(self, batch):
        return Tensor(numbers(batch * self.inputs, 7919, 2000)).reshape(batch, self.inputs)


class Cnn:
    """Two convolutions and a linear layer."""

    batch, classes = 64, 10
    rate = 0.001

    def __init__(self, _layers):
        self.first = nn.Conv2d(1, 8, 3)
        self.second = nn.Conv2d(8, 16, 3)
        self.linear = nn.Linear(400, self.classes)

    def __call__(self, batch):
        hidden = self.first(batch).relu().max_pool2d()
        return self.linear(self.second(hidden).relu().max_pool2d().flatten(1))

    def data(self, batch):
        return Tensor(numbers(batch * 28 * 28, 7919, 2000)).reshape(batch, 1, 28, 28)


class Alexnet:
    """Two convolutions and a classifier of layers of 2 MiB each, which has nearly all of the parameters."""

    batch, inputs, width, layers, classes = 1, 1024, 512, 6, 10
    rate = 1e-5

    def __init__(self, layers):
        self.first = nn.Conv2d(3, 16, 5, stride=2)
        self.second = nn.Conv2d(16, 64, 3, padding=1)
        self.classifier = linear_layers(self.inputs, self.width, layers or self.layers)
        self.last = nn.Linear(self.inputs, self.classes, bias=False)

    def __call__(self, batch):
        hidden = self.first(batch).relu().max_pool2d((3, 3))
        hidden = self.second(hidden).relu().flatten(1)
        for layer in self.classifier:
            hidden = layer(hidden).relu()
        return self.last(hidden)

    def data(self, batch):
        return Tensor(numbers(batch * 3 * 28 * 28, 7919, 2000)).reshape(batch, 3, 28, 28)


class Transformer:
    """Blocks of attention and a perceptron on a short sequence, as decoders of text have them."""

    batch, length, width, heads, hidden, layers, classes = 1, 4, 512, 8, 1024, 1, 64
    rate = 1e-5

    def __init__(self, layers):
        self.embedding = nn.Embedding(self.classes, self.width)
        self.blocks = [Block(self.width, self.heads, self.hidden) for _ in range(layers or self.layers)]
        self.head = nn.Linear(self.width, self.classes, bias=False)

    def __call__(self, batch):
        hidden = self.embedding(batch)
        for block in self.blocks:
            hidden = block(hidden)
        return self.head(hidden[:, -1])

    def data(self, batch):
        return Tensor([[index * 37 % self.classes for index in range(self.length)]] * batch)


class Block:
    """Block of a transformer, which normalises before."""

    def __init__(self, width, heads, hidden):
        self.width, self.heads = width, heads
        self.first_norm, self.second_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        sizes = {"projections": (3 * width, width), "output": (width, width), "up": (hidden, width), "down": (width, hidden)}
        for name, (outputs, inputs) in sizes.items():
            linear = nn.Linear(inputs, outputs, bias=False)
            linear.weight = weights(outputs, inputs)
            setattr(self, name, linear)

    def __call__(self, hidden):
        batch, length, _ = hidden.shape
        normed = self.first_norm(hidden)
        each = self.projections(normed).reshape(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attended = each[0].scaled_dot_product_attention(each[1], each[2], is_causal=True)
        hidden = hidden + self.output(attended.transpose(1, 2).reshape(batch, length, self.width))
        return hidden + self.down(self.up(self.second_norm(hidden)).gelu())


MODELS = {model.__name__.lower(): model for model in (Mlp, Deep, Cnn, Alexnet, Transformer)}


def allocate_managed():
    """Has tinygrad allocate managed memory."""
    from tinygrad.runtime.autogen import cuda

    attach_global = 1
    cuda.cuMemAlloc_v2 = lambda address, size: cuda.cuMemAllocManaged(address, size, attach_global)


def batch_of(model, size):
    """Inputs and labels."""
    return model.data(size).realize(), Tensor([index % model.classes for index in range(size)]).realize()


def stepper(model, optimizer, inputs, labels):
    """A step of training on a batch, which returns the loss."""

    # As its users do: from the third iteration on, the kernels of the second are launched again, without a schedule of its own.
    @TinyJit
    def step():
        optimizer.zero_grad()
        loss = model(inputs).sparse_categorical_crossentropy(labels)
        loss.backward()
        # Together, so that the forward pass runs once.
        return loss.realize(*optimizer.schedule_step())

    return step


def train(model, iterations, validate_every, batch_change_at):
    inputs, labels = batch_of(model, model.batch)
    optimizer = nn.optim.Adam(nn.state.get_parameters(model), lr=model.rate)
    # So that the first iteration has the kernels of the others, and they are generated once.
    Tensor.realize(*nn.state.get_parameters(optimizer))
    step = stepper(model, optimizer, inputs, labels)

    iteration = 0
    while iterations is None or iteration < iterations:
        begin = time.monotonic()
        if iteration == batch_change_at:
            step = stepper(model, optimizer, *batch_of(model, 2 * model.batch))
        value = step().item()
        line = {"iteration": iteration, "loss": value, "bits": value.hex(), "seconds": round(time.monotonic() - begin, 3)}
        if validate_every and (iteration + 1) % validate_every == 0:
            with Context(TRAINING=0):
                line["validation"] = model(inputs).sparse_categorical_crossentropy(labels).item()
        print(json.dumps(line), flush=True)
        iteration += 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--layers", type=int, help="of deep and alexnet, in pairs; blocks of transformer")
    parser.add_argument("--iterations", type=int)
    parser.add_argument("--validate-every", type=int, metavar="N", help="a validation pass behind every Nth iteration")
    parser.add_argument("--batch-change-at", type=int, metavar="N", help="twice the batch from this iteration on, counted from 0")
    parser.add_argument("--managed", action="store_true", help="managed memory instead of the device's")
    parser.add_argument("--hold", action="store_true", help="wait for the end of standard input before the exit")
    options = parser.parse_args()
    if options.layers is not None:
        if options.model not in ("deep", "alexnet", "transformer"):
            parser.error("this model has no --layers")
        if options.layers < 1 or options.model != "transformer" and options.layers % 2:
            parser.error("--layers are in pairs")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    if options.managed:
        allocate_managed()
    with Context(TRAINING=1):
        Tensor.manual_seed(1)
        train(MODELS[options.model](options.layers), options.iterations, options.validate_every, options.batch_change_at)
    if options.hold:
        sys.stdin.read()


if __name__ == "__main__":
    main()
