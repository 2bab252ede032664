//! Records and driver layouts shared by the probes and the collector.
