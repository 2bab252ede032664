//! Training data: images of ten shapes. They are generated, so that no download is needed, but vary
//! like real images: light from one side, soft edges, shades in the background, and a little noise.

pub(crate) const SIDE: usize = 32;
pub(crate) const KINDS: usize = 10;

pub(crate) struct Image {
    /// Row by row, about -0.5 to 0.5.
    pub(crate) pixels: Vec<f32>,
    pub(crate) kind: usize,
}

/// Pseudo-random numbers; the same sequence for the same seed.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.bits() % limit as u64).unwrap_or(0)
    }

    pub(crate) fn between(&mut self, low: f32, high: f32) -> f32 {
        let unit = (self.bits() >> 40) as f32 / (1_u64 << 24) as f32;
        low + (high - low) * unit
    }

    /// A number of mean 0 and standard deviation 1.
    pub(crate) fn normal(&mut self) -> f32 {
        (0..12).map(|_| self.between(-0.5, 0.5)).sum()
    }
}

impl Image {
    pub(crate) fn of(random: &mut Random) -> Self {
        let kind = random.below(KINDS);
        let size = random.between(7.0, 12.0);
        let [x, y] = [0; 2].map(|_| random.between(size, SIDE as f32 - size));
        let (sin, cos) = random.between(0.0, std::f32::consts::TAU).sin_cos();
        let shade = random.between(-0.15, 0.15);
        let contrast = random.between(0.25, 0.5) * if random.below(2) == 0 { 1.0 } else { -1.0 };
        let light = [0; 2].map(|_| random.between(-0.01, 0.01));
        let waves: [[f32; 4]; 3] = [0; 3].map(|_| {
            [random.between(-0.5, 0.5), random.between(-0.5, 0.5), random.between(0.0, 6.0), random.between(0.0, 0.06)]
        });
        let mut pixels = Vec::with_capacity(SIDE * SIDE);
        for row in 0..SIDE {
            for column in 0..SIDE {
                let (down, right) = (row as f32, column as f32);
                let background: f32 =
                    waves.iter().map(|[a, b, phase, height]| height * (a * right + b * down + phase).sin()).sum();
                let lit = light[0] * (right - SIDE as f32 / 2.0) + light[1] * (down - SIDE as f32 / 2.0);
                // Four samples per pixel make edges soft.
                let covered: f32 = [(0.25, 0.25), (0.25, 0.75), (0.75, 0.25), (0.75, 0.75)]
                    .iter()
                    .map(|(dx, dy)| {
                        let (u, v) = ((right + dx - x) / size, (down + dy - y) / size);
                        if inside(kind, u * cos + v * sin, v * cos - u * sin) { 0.25 } else { 0.0 }
                    })
                    .sum();
                pixels.push(shade + background + lit + covered * contrast + 0.01 * random.normal());
            }
        }
        Self { pixels, kind }
    }
}

/// Whether a point lies in the shape, which has a radius of about 1.
fn inside(kind: usize, u: f32, v: f32) -> bool {
    let (radius, far, near) = (u.hypot(v), u.abs().max(v.abs()), u.abs().min(v.abs()));
    match kind {
        // A disc and a ring.
        0 => radius < 0.85,
        1 => radius < 0.95 && radius > 0.55,
        // A square and its frame.
        2 => far < 0.75,
        3 => far < 0.8 && far > 0.45,
        // A triangle.
        4 => v > -0.6 && v < 0.9 - 1.7 * u.abs(),
        // A cross.
        5 => near < 0.22 && far < 0.95,
        // Two bars.
        6 => u.abs() < 0.9 && v.abs() > 0.25 && v.abs() < 0.65,
        // Half a disc.
        7 => radius < 0.95 && v > 0.0,
        // Two fields of a chessboard.
        8 => u * v > 0.0 && far < 0.85,
        // A crescent.
        _ => radius < 0.95 && (u - 0.45).hypot(v) > 0.75,
    }
}
