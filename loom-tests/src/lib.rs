//! Loom models of allotment's protocols. They exist only under `--cfg loom`; the gate
//! `ci/loom.sh` runs them, and runs the teeth that must make them fail.
