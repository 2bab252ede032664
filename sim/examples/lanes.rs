//! scratch
#![allow(clippy::all, clippy::pedantic, clippy::print_stdout, clippy::unwrap_used, missing_docs)]
use policy::planner::{foresight::Foresight, Planner, Act, Tier};
use sim::*;
use trace::zoo::{Hardware, Recipe};
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let machine = Machine::named(&a[2]).unwrap();
    let mut machine = machine;
    let g10 = a[1].contains('/');
    let iteration = if g10 { trace::import::g10::load(std::path::Path::new(&format!("/work/shared/data/g10/derived/{}.kernels.csv", a[1]))).unwrap().iteration } else { a[1].parse::<Recipe>().unwrap().make(&Hardware::named(&a[2]).unwrap()).unwrap()};
    if g10 || a.len() > 6 { machine.link_to_gpu.peak_bytes_per_s.value = 15.754e9; machine.link_to_host.peak_bytes_per_s.value = 15.754e9; }
    let gpu_bytes = a[3].parse::<u64>().unwrap() << 30;
    let setup = Setup { gpu_bytes, host_bytes: if g10 { 128 << 30 } else { 1<<40 }, ..Setup::new(&machine) };
    let aside: u64 = a[4].parse::<u64>().unwrap() << 20;
    let keep: usize = a[5].parse().unwrap();
    let m = setup.for_planners_within(gpu_bytes - aside);
    let s = Foresight { keep }.plan(&iteration, &m).unwrap();
    let mut c = std::collections::BTreeMap::new();
    for x in s.actions() { let k = match x.act { Act::Move(Tier::Gpu)=>"gpu",Act::Move(Tier::Host)=>"host",Act::Move(Tier::Flash)=>"flash",Act::Allocate=>"alloc",Act::Drop=>"drop",Act::HandOn(_)=>"handon"};
        let e=c.entry(k).or_insert((0u64,0u64)); e.0+=1; e.1+= x.part.map_or(iteration.tensors()[x.tensor].bytes, |p| p.bytes()); }
    println!("{c:?}");
    let mut h = History::new(&iteration);
    let mut starts = vec![0u64; iteration.kernels().len()];
    let mut ends = starts.clone();
    let mut began = 0;
    let mut arr: Vec<(u64,u64)> = vec![];
    let mut w = |e: Event| { h.see(e); match e { Event::Began{at_ns}=>{began=at_ns; arr.clear();}, Event::Ran{kernel,start_ns,end_ns}=>{starts[kernel.0 as usize]=start_ns-began; ends[kernel.0 as usize]=end_ns-began;}, _=>{} } };
    let o = observed(&iteration, &setup, &s, &mut w).unwrap();
    let _ = &arr;
    println!("ssd read {} written {}", o.bytes_ssd_read>>20, o.bytes_ssd_written>>20); println!("time {:.4} bound {:.4} ideal {:.4} htod {} dtoh {} faults {}", o.time_s, bound_s(&iteration,&setup), o.ideal_s, o.bytes_htod>>20, o.bytes_dtoh>>20, o.faults);
    let st = h.stretch_ns() as f64;
    let fine = std::env::var("FINE").is_ok(); let n = if fine {1} else {h.stretches().len().div_ceil(40)};
    for (i,c) in h.stretches().chunks(n).enumerate() {
        let t = st*c.len() as f64;
        let up = c.iter().map(|x| x.to_gpu_bytes).sum::<u64>() as f64/t/(machine.link_to_gpu.peak_bytes_per_s.value/1e9);
        let dn = c.iter().map(|x| x.to_host_bytes).sum::<u64>() as f64/t/(machine.link_to_host.peak_bytes_per_s.value/1e9);
        let res = c.iter().map(|x| x.resident_bytes).max().unwrap();
        let (b,e) = ((i as f64*n as f64*st) as u64, ((i+1) as f64*n as f64*st) as u64);
        let first = starts.iter().position(|&x| x>=b).unwrap_or(0);
        let busy: u64 = starts.iter().zip(&ends).map(|(&s,&x)| x.min(e).saturating_sub(s.max(b))).sum();
        if !fine || up+dn < 0.95 { println!("{:8.2} ms  up {:.2} down {:.2} res {:6} MiB alive {:6} kernel {} busy {:.2}", b as f64/1e6, up, dn, res>>20, c.iter().map(|x| x.alive_bytes).max().unwrap()>>20, first, busy as f64/(e-b) as f64); }
    }
}
