use super::*;

const C: &str = "679f3691f7f1b20198548be43b86f265f9fff9be0ac4c973638f5ee89decbca9";
const D: &str = "3350ade4226f0adcd9e4e9545d7c2a16a5aa362d12315f2a88e2024cea1246cf";
const POD: &str = "b6a16766-05ee-446a-8ee5-ff96a817f47c";
const STATIC_POD: &str = "4f3d3a1c9a1d3b6a0c8d6a5e2f7b1c90";

/// Owner of a path, as `pod=… job=… container=… unit=…`, without missing parts. `C` and `D` are
/// container ids, `P` and `P_` a pod's UID with dashes and underscores, `S` a static pod's.
fn owner_of(path: &str) -> String {
    let path = path
        .replace("{C}", C)
        .replace("{D}", D)
        .replace("{P_}", &POD.replace('-', "_"))
        .replace("{P}", POD)
        .replace("{S}", STATIC_POD);
    shown(&of_path(&path))
}

fn shown(owner: &Owner) -> String {
    let Owner { container, pod, job, unit } = owner;
    let short = |text: &str| {
        text.replace(C, "{C}")
            .replace(D, "{D}")
            .replace(POD, "{P}")
            .replace(STATIC_POD, "{S}")
            .replace(&POD.replace('-', "_"), "{P_}")
    };
    let parts = [
        pod.as_ref().map(|pod| format!("pod={}", pod.uid)),
        job.as_ref().map(|job| format!("job={}.{}", job.id, job.step.as_deref().unwrap_or("-"))),
        container.as_ref().map(|container| format!("{}={}", container.runtime.unwrap_or("container"), container.id)),
        unit.as_ref().map(|unit| format!("unit={unit}")),
    ];
    short(&parts.into_iter().flatten().collect::<Vec<_>>().join(" "))
}

fn assert_owners(table: &[(&str, &str)]) {
    for (path, expected) in table {
        assert_eq!(owner_of(path), *expected, "{path}");
    }
}

#[test]
fn kubernetes_pods_of_the_systemd_cgroup_driver() {
    assert_owners(&[
        (
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{P_}.slice/cri-containerd-{C}.scope",
            "pod={P} containerd={C} unit=cri-containerd-{C}.scope",
        ),
        (
            "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{P_}.slice/crio-{C}.scope",
            "pod={P} cri-o={C} unit=crio-{C}.scope",
        ),
        // crun puts the container's processes into a separate cgroup.
        ("/kubepods.slice/kubepods-pod{P_}.slice/crio-{C}.scope/container", "pod={P} cri-o={C} unit=crio-{C}.scope"),
        // Guaranteed pods have no class in their path.
        ("/kubepods.slice/kubepods-pod{P_}.slice/docker-{C}.scope", "pod={P} docker={C} unit=docker-{C}.scope"),
        // A kubelet with its own root, as inside a kind node.
        (
            "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{P_}.slice/cri-containerd-{C}.scope",
            "pod={P} containerd={C} unit=cri-containerd-{C}.scope",
        ),
        ("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{P_}.slice", "pod={P}"),
        // A static pod's, whose UID is a hash.
        (
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{S}.slice/cri-containerd-{C}.scope",
            "pod={S} containerd={C} unit=cri-containerd-{C}.scope",
        ),
    ]);
}

#[test]
fn kubernetes_pods_of_the_cgroupfs_driver() {
    assert_owners(&[
        ("/kubepods/burstable/pod{P}/{C}", "pod={P} container={C}"),
        ("/kubepods/besteffort/pod{P}/crio-{C}", "pod={P} cri-o={C}"),
        ("/kubepods/pod{P}/{C}", "pod={P} container={C}"),
        ("/kubepods/burstable/pod{S}/{C}", "pod={S} container={C}"),
        ("/kubelet/kubepods/besteffort/pod{P}/{C}", "pod={P} container={C}"),
    ]);
}

#[test]
fn kubernetes_pods_of_mismatched_cgroup_drivers() {
    assert_owners(&[
        ("/kubepods-besteffort-pod{P_}.slice:cri-containerd:{C}", "pod={P} containerd={C}"),
        ("/system.slice/kubepods-burstable-pod{P_}.slice:cri-containerd:{C}", "pod={P} containerd={C}"),
        (
            "/system.slice/containerd.service/kubepods-pod{P_}.slice:cri-containerd:{C}",
            "pod={P} containerd={C} unit=containerd.service",
        ),
    ]);
}

#[test]
fn containers_without_a_pod() {
    assert_owners(&[
        ("/docker/{C}", "docker={C}"),
        ("/system.slice/docker-{C}.scope", "docker={C} unit=docker-{C}.scope"),
        ("/machine.slice/libpod-{C}.scope/container", "podman={C} unit=libpod-{C}.scope"),
        ("/machine.slice/machine-libpod_pod_{D}.slice/libpod-{C}.scope", "podman={C} unit=libpod-{C}.scope"),
        ("/libpod_parent/libpod-{C}", "podman={C}"),
        ("/system.slice/nginx.service/libpod-payload-{C}", "podman={C} unit=nginx.service"),
        ("/system.slice/nerdctl-{C}.scope", "containerd={C} unit=nerdctl-{C}.scope"),
        ("/default/{C}", "container={C}"),
        ("/ecstasks.slice/ecstasks-0123456789abcdef.slice/docker-{C}.scope", "docker={C} unit=docker-{C}.scope"),
        ("/ecs/0123456789abcdef0123456789abcdef/{C}", "container={C}"),
    ]);
}

#[test]
fn rootless_containers() {
    let user = "/user.slice/user-1000.slice/user@1000.service";
    for (below, expected) in [
        ("user.slice/libpod-{C}.scope/container", "podman={C} unit=user@1000.service/libpod-{C}.scope"),
        ("user.slice/docker-{C}.scope", "docker={C} unit=user@1000.service/docker-{C}.scope"),
        ("app.slice/redis.service/libpod-payload-{C}", "podman={C} unit=user@1000.service/redis.service"),
    ] {
        assert_eq!(owner_of(&format!("{user}/{below}")), expected);
    }
}

#[test]
fn container_monitor_is_not_in_the_container() {
    assert_owners(&[
        ("/machine.slice/libpod-conmon-{C}.scope", "unit=libpod-conmon-{C}.scope"),
        ("/kubepods.slice/kubepods-pod{P_}.slice/crio-conmon-{C}.scope", "pod={P} unit=crio-conmon-{C}.scope"),
    ]);
}

#[test]
fn slurm_jobs() {
    assert_owners(&[
        ("/system.slice/slurmstepd.scope/job_123/step_0/user/task_0", "job=123.0 unit=slurmstepd.scope"),
        (
            "/system.slice/slurm-worker-1_slurmstepd.scope/job_4749/step_batch/user/task_0",
            "job=4749.batch unit=slurm-worker-1_slurmstepd.scope",
        ),
        (
            "/system.slice/slurmstepd.scope/job_123/step_extern/user/task_special",
            "job=123.extern unit=slurmstepd.scope",
        ),
        ("/system.slice/slurmstepd.scope/job_123/step_0+1/slurm", "job=123.0+1 unit=slurmstepd.scope"),
        ("/system.slice/slurmstepd.scope/job_123", "job=123.- unit=slurmstepd.scope"),
        // From 26.05 on jobs have another number.
        (
            "/system.slice/slurmstepd.scope/s5K1KKYAYG5D00/step_0/user/task_0",
            "job=s5K1KKYAYG5D00.0 unit=slurmstepd.scope",
        ),
        ("/system.slice/slurmstepd.scope/system", "unit=slurmstepd.scope"),
        // Version 1.
        ("/slurm/uid_1000/job_123/step_0/task_0", "job=123.0"),
        ("/slurm_node01/uid_1000/job_123/step_batch/task_0", "job=123.batch"),
        ("/slurm/uid_1000/job_123/step_batch", "job=123.batch"),
        ("/slurm/uid_1000", ""),
    ]);
}

#[test]
fn container_in_a_job_belongs_to_the_job() {
    assert_owners(&[(
        "/system.slice/slurmstepd.scope/job_123/step_0/user/task_0/libpod-{C}",
        "job=123.0 podman={C} unit=slurmstepd.scope",
    )]);
}

#[test]
fn systemd_units() {
    assert_owners(&[
        ("/system.slice/ollama.service", "unit=ollama.service"),
        ("/system.slice/ollama.service/worker", "unit=ollama.service"),
        ("/system.slice/system-serial\\x2dgetty.slice/serial-getty@ttyS0.service", "unit=serial-getty@ttyS0.service"),
        // All logins of a user are one.
        ("/user.slice/user-1000.slice/session-2.scope", "unit=user-1000.slice"),
        ("/user.slice/user-1000.slice/session-c3.scope", "unit=user-1000.slice"),
        ("/system.slice/session-2.scope", "unit=session-2.scope"),
        (
            "/user.slice/user-1000.slice/user@1000.service/app.slice/train.service",
            "unit=user@1000.service/train.service",
        ),
        (
            "/user.slice/user-1000.slice/user@1000.service/app.slice/app-gnome-org.gnome.Terminal-4242.scope",
            "unit=user@1000.service/app-gnome-org.gnome.Terminal-4242.scope",
        ),
        ("/user.slice/user-1000.slice/user@1000.service/init.scope", "unit=user@1000.service/init.scope"),
        ("/user.slice/user-1000.slice/user@1000.service", "unit=user@1000.service"),
        ("/init.scope", "unit=init.scope"),
        // systemd's escape for a name that collides with a file of the controller.
        ("/system.slice/_cpu.service", "unit=cpu.service"),
        (
            "/machine.slice/systemd-nspawn@box.service/payload/system.slice/sshd.service",
            "unit=systemd-nspawn@box.service",
        ),
    ]);
}

#[test]
fn outermost_container_takes_precedence() {
    assert_owners(&[
        // Docker in a pod.
        (
            "/kubepods.slice/kubepods-pod{P_}.slice/cri-containerd-{C}.scope/docker/{D}",
            "pod={P} containerd={C} unit=cri-containerd-{C}.scope",
        ),
        ("/kubepods/burstable/pod{P}/{C}/docker/{D}", "pod={P} container={C}"),
        // kind: a node is a container of Docker.
        (
            "/system.slice/docker-{D}.scope/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{P_}.slice/cri-containerd-{C}.scope",
            "docker={D} unit=docker-{D}.scope",
        ),
        ("/docker/{D}/kubelet/kubepods/burstable/pod{P}/{C}", "docker={D}"),
        ("/docker/{D}/system.slice/sshd.service", "docker={D}"),
    ]);
}

#[test]
fn users_cgroups_cannot_imitate_pods_jobs_or_units() {
    assert_owners(&[
        (
            "/user.slice/user-1000.slice/user@1000.service/kubepods.slice/kubepods-pod{P_}.slice/cri-containerd-{C}.scope",
            "containerd={C} unit=user@1000.service/cri-containerd-{C}.scope",
        ),
        (
            "/user.slice/user-1000.slice/user@1000.service/kubepods-pod{P_}.slice:cri-containerd:{C}",
            "containerd={C} unit=user@1000.service",
        ),
        (
            "/user.slice/user-1000.slice/user@1000.service/x.service/kubepods-pod{P_}.slice:cri-containerd:{C}",
            "containerd={C} unit=user@1000.service/x.service",
        ),
        ("/user.slice/user-1000.slice/user@1000.service/slurm/uid_0/job_1", "unit=user@1000.service"),
        (
            "/user.slice/user-1000.slice/user@1000.service/slurmstepd.scope/job_1",
            "unit=user@1000.service/slurmstepd.scope",
        ),
        ("/system.slice/tenant.service/kubepods/pod{P}/x", "unit=tenant.service"),
        (
            "/system.slice/tenant.service/kubepods-pod{P_}.slice:cri-containerd:{C}",
            "containerd={C} unit=tenant.service",
        ),
        ("/system.slice/tenant.service/sshd.service", "unit=tenant.service"),
        ("/lxc.payload.box/kubepods/pod{P}", ""),
    ]);
}

#[test]
fn malformed_names_yield_no_owner() {
    let long = format!("/system.slice/{}.service", "x".repeat(300));
    assert_owners(&[
        ("", ""),
        ("/", ""),
        ("/../../..", ""),
        ("/docker/0123456789ab", ""),
        ("/docker/{C}0", ""),
        ("/kubepods/pod", ""),
        ("/kubepods/pod1234", ""),
        ("/kubepods/podb6a16766-05ee-446a-8ee5", ""),
        ("/kubepods.slice/kubepods-podb6a16766_05ee_446a_8ee5_ff96a817f47g.slice", ""),
        ("/pod{P}", ""),
        ("/system.slice/.service", ""),
        ("/system.slice/a b.service", ""),
        ("/system.slice/a\u{1b}[31m.service", ""),
        ("/system.slice/\u{fffd}.service", ""),
        ("/system.slice/slurmstepd.scope/job_", "unit=slurmstepd.scope"),
        ("/system.slice/slurmstepd.scope/job_1;x", "unit=slurmstepd.scope"),
        ("/system.slice/slurmstepd.scope/job_1/step_\u{7}", "job=1.- unit=slurmstepd.scope"),
        ("/a:b:c", ""),
        (&long, ""),
    ]);
}

#[test]
fn end_of_the_path_is_sufficient_in_another_cgroup_namespace() {
    assert_owners(&[
        (
            "/../../kubepods-burstable-pod{P_}.slice/cri-containerd-{C}.scope",
            "pod={P} containerd={C} unit=cri-containerd-{C}.scope",
        ),
        ("/../cri-containerd-{C}.scope", "containerd={C} unit=cri-containerd-{C}.scope"),
    ]);
}

#[test]
fn removed_cgroup_keeps_its_owner() {
    assert_owners(&[("/system.slice/docker-{C}.scope (deleted)", "docker={C} unit=docker-{C}.scope")]);
}

#[test]
fn cgroup_v1_owner_comes_from_the_most_specific_hierarchy() {
    let of_paths = |paths: &[&str]| shown(&of_paths(paths.iter().copied()));
    // Slurm may use the devices controller alone.
    assert_eq!(of_paths(&["/", "/system.slice/slurmd.service", "/slurm/uid_1000/job_7/step_0/task_0"]), "job=7.0");
    // Docker leaves the hierarchy without controllers to systemd.
    assert_eq!(of_paths(&[&format!("/docker/{C}"), "/system.slice/containerd.service"]), "docker={C}");
    assert_eq!(of_paths(&["/a.service", "/b.service"]), "unit=a.service");
    assert_eq!(of_paths(&[]), "");
}
