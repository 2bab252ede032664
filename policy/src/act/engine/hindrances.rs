//! What keeps more from being done, for whoever asks.

use model::{Hindered, Hindrance, Process};

use super::{
    super::scene::{Scene, Sight},
    Acting, gpus, is_counting, seen, wished,
};

impl Acting {
    /// What keeps more from being done for whom something is wanted, apart from how much is: after [`Self::observe`] of the same scene. As long as a look
    /// takes: not for each interval.
    #[must_use]
    pub fn hindrances(&self, scene: &Scene<'_>) -> Vec<Hindrance> {
        let mut all = nowhere(scene);
        for (process, gpu, wish) in seen(scene) {
            let Some(track) = self.tracks.get(&(process.id, gpu)) else { continue };
            let sight = Sight::of(scene, process, gpu, wish, self.acted_on_beside(process.id, gpu));
            let rests = self.leaving.concerns(process.id, gpu);
            let hindrances = track.hindrances(&sight, &self.guard, &self.limits, rests);
            all.extend(hindrances.into_iter().map(|(hindered, why)| Hindrance {
                process: process.id,
                gpu: Some(gpu),
                hindered,
                why,
            }));
        }
        all
    }
}

/// Those of them that are not [`seen`] at any GPU.
fn nowhere(scene: &Scene<'_>) -> Vec<Hindrance> {
    let why = |process: &Process| {
        if !is_counting(scene) {
            Some("nothing is counted")
        } else if gpus(process).next().is_none() {
            Some("nothing was counted of it at any GPU that is known")
        } else {
            None
        }
    };
    let hindrances = wished(scene).filter_map(|(process, _)| {
        let why = why(process)?.to_owned();
        Some(Hindrance { process: process.id, gpu: None, hindered: Hindered::Everything, why })
    });
    hindrances.collect()
}
