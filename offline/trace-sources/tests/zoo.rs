//! Networks of the zoo, compared with published figures.
#![expect(clippy::unwrap_used, reason = "a failed step ends the test")]

use trace::{Iteration, KernelId, Role};
use trace_sources::zoo::{Hardware, Model, Recipe, hardware::Work};

fn make(recipe: &str) -> Iteration {
    recipe.parse::<Recipe>().unwrap().make(&Hardware::named("a100").unwrap()).unwrap()
}

fn bytes(it: &Iteration, role: Role) -> u64 {
    it.tensors().values().iter().filter(|tensor| tensor.role == role).map(|tensor| tensor.bytes).sum()
}

#[test]
fn every_network_has_exactly_its_published_parameters() {
    let published = [
        ("resnet50:1", 25_557_032),
        ("resnet152:1", 60_192_808),
        ("vgg16:1", 138_357_544),
        // Includes both heads of pre-training.
        ("bert:1", 110_106_428),
        ("gpt:1", 124_439_808),
        ("vit:1", 86_567_656),
        ("moe:1x8", 6_919_161_856_u64),
    ];
    assert_eq!(published.len(), Model::ALL.len());
    for (recipe, parameters) in published {
        assert_eq!(bytes(&make(recipe), Role::Weight) / 4, parameters, "{recipe}");
    }
}

#[test]
fn the_forward_pass_has_the_published_arithmetic() {
    // One FLOP of a matrix product takes a nanosecond. All else takes the minimum of a kernel.
    let counter = Hardware {
        memory_bytes_per_s: f64::INFINITY,
        vector_flops_per_s: f64::INFINITY,
        matmul_flops_per_s: 1e9,
        ..Hardware::named("a100").unwrap()
    };
    // Billions of multiplications per image.
    for (recipe, published) in [("resnet50:1", 4.09), ("resnet152:1", 11.51), ("vgg16:1", 15.47), ("vit:1", 17.56)] {
        let it = recipe.parse::<Recipe>().unwrap().make(&counter).unwrap();
        let forward = it.kernels().values().iter().filter(|kernel| kernel.name.ends_with("_forward"));
        let multiplications = forward.map(|kernel| kernel.duration_ns).sum::<u64>() as f64 / 2e9;
        assert!((multiplications / published - 1.0).abs() < 0.01, "{recipe}: {multiplications}, published {published}");
    }
}

#[test]
fn activations_grow_with_the_batch_and_parameters_do_not() {
    for model in Model::ALL {
        let sequence = model.sequence().map(|tokens| tokens.min(128));
        let of = |batch| Recipe::new(model, batch, sequence).unwrap().make(&Hardware::named("h200").unwrap()).unwrap();
        let (small, large) = (of(8), of(32));
        let growth = bytes(&large, Role::Activation) as f64 / bytes(&small, Role::Activation) as f64;
        assert!((3.99..=4.0).contains(&growth), "{model:?}: {growth}");
        assert_eq!(large.persistent_bytes(), small.persistent_bytes(), "{model:?}");
        assert!(large.peak().bytes > small.peak().bytes, "{model:?}");
        assert!(large.duration_ns() > small.duration_ns(), "{model:?}");
        eprintln!(
            "{}: {} kernels, {} tensors, {} MiB persistent, {} MiB peak, {} ms",
            large.name(),
            large.kernels().len(),
            large.tensors().len(),
            large.persistent_bytes() >> 20,
            large.peak().bytes >> 20,
            large.duration_ns() / 1_000_000
        );
    }
}

#[test]
fn only_initial_tensors_are_read_before_they_are_written() {
    for model in Model::ALL {
        let it = Recipe::new(model, 2, model.sequence().map(|_| 16))
            .unwrap()
            .make(&Hardware::named("h100").unwrap())
            .unwrap();
        for (id, tensor) in it.tensors().iter() {
            let first = it.uses(id).first();
            let initial = tensor.persistent || tensor.role == Role::Input;
            // An expert without tokens is not used.
            assert!(first.is_some() || model == Model::Moe && tensor.persistent, "{model:?}: {tensor:?} is not used");
            assert!(
                initial || first.is_some_and(|first| first.access == trace::Access::Write),
                "{model:?}: {tensor:?}"
            );
        }
    }
}

#[test]
fn every_parameter_is_updated_once_with_its_gradient_and_its_states() {
    for (recipe, states) in [("resnet50:2", 1), ("gpt:2x64", 2), ("bert:2", 2), ("moe:2x64", 2)] {
        let it = make(recipe);
        let updates: Vec<_> = it.kernels().iter().filter(|(_, kernel)| kernel.name.ends_with("_update")).collect();
        let weights = it.tensors().values().iter().filter(|tensor| tensor.role == Role::Weight).count();
        assert_eq!(updates.len(), weights, "{recipe}");
        for (id, kernel) in updates {
            let roles: Vec<_> = it.outputs(id).map(|tensor| it.tensors()[tensor].role).collect();
            let expected: Vec<_> = [Role::Weight].into_iter().chain(vec![Role::OptimizerState; states]).collect();
            assert_eq!(roles, expected, "{recipe} {}", kernel.name);
        }
        assert_eq!(bytes(&it, Role::OptimizerState), states as u64 * bytes(&it, Role::Weight));
    }
}

#[test]
fn saved_activations_live_from_the_forward_to_the_backward_pass() {
    let it = make("gpt:8");
    let peak = it.peak();
    // The peak is at the logits of the vocabulary: the end of the forward pass or the beginning of
    // the backward pass.
    let name = &it.kernels()[peak.kernel].name;
    assert!(name.starts_with("loss") || name.starts_with("head"), "{name}");
    let start = it.live_bytes()[KernelId(0)];
    assert!(peak.bytes > 4 * start, "{} at the start, {} at the peak", start, peak.bytes);
}

#[test]
fn a_kernel_takes_as_long_as_the_slower_of_arithmetic_and_memory() {
    let hardware = Hardware::named("a100").unwrap();
    let matmul = |matmul_flops| Work { matmul_flops, vector_flops: 0.0 };
    assert_eq!(hardware.kernel_ns(matmul(156e9), 1), 1_000_000);
    assert_eq!(hardware.kernel_ns(matmul(156e9), 15_550_000_000), 10_000_000);
    assert_eq!(hardware.kernel_ns(Work { matmul_flops: 0.0, vector_flops: 19.5e9 }, 1), 1_000_000);
    assert_eq!(hardware.kernel_ns(Work::default(), 1), 2_000, "the minimum");
}

#[test]
fn every_gpu_has_its_figures_and_their_source() {
    let names: Vec<_> = Hardware::all().into_iter().map(|hardware| hardware.name).collect();
    assert_eq!(names, ["gtx1080ti", "a100", "h100", "h200", "gh200"]);
    for hardware in Hardware::all() {
        assert!(hardware.source.contains("NVIDIA"), "{hardware:?}");
        assert!(hardware.matmul_flops_per_s >= hardware.vector_flops_per_s, "{hardware:?}");
        assert!(hardware.memory_bytes > 10 << 30 && hardware.memory_bytes_per_s > 4e11, "{hardware:?}");
    }
    assert_eq!(Hardware::named("abacus"), None);
}

#[test]
fn a_recipe_names_a_model_a_batch_and_maybe_a_length() {
    for text in ["bert:256x128", "resnet50:32", "moe:1x4096"] {
        assert_eq!(text.parse::<Recipe>().unwrap().to_string(), text);
    }
    assert_eq!("gpt:8".parse::<Recipe>().unwrap().to_string(), "gpt:8x1024");
    let rejection = |text: &str| text.parse::<Recipe>().unwrap_err().to_string();
    assert_eq!(
        rejection("bert"),
        "invalid recipe \"bert\": expected MODEL:BATCH or MODEL:BATCHxTOKENS, such as bert:256 or gpt:8x1024"
    );
    assert_eq!(
        rejection("alexnet:1"),
        "unknown model \"alexnet\": expected one of resnet50, resnet152, vgg16, bert, gpt, vit, moe"
    );
    assert_eq!(rejection("bert:0"), "the batch is 0: expected 1 to 1048576");
    assert_eq!(rejection("bert:1x513"), "the sequence is 513: expected 1 to 512");
    assert_eq!(rejection("vit:1x5"), "vit takes images, not sequences");
    assert_eq!(rejection("gpt:1048576"), "the number of tokens is 1073741824: expected 1 to 16777216");
    assert!("moe:128x131072".parse::<Recipe>().unwrap().make(&Hardware::named("h200").unwrap()).is_ok(), "the maximum");
}
