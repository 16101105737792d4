//! The command line of a bench.

use std::process::exit;

use lexopt::prelude::*;

const HELP: &str = "\
Times allotment and its peers in interleaved rounds.

  --quick         fewer rounds
  --filter TEXT   only cells whose group or name contains TEXT (TEXT alone is the same)
  --criterion     Criterion's report of the same cells instead (target/criterion)
  --help          this

`cargo bench -p allotment-benches --bench alloc_path -- --quick` passes them on.";

/// What a bench is asked for.
#[derive(Clone, Debug, Default)]
pub struct Args {
    /// Fewer rounds.
    pub quick: bool,
    /// Only cells whose group or name contains this.
    pub filter: String,
    /// Criterion's report instead of ours.
    pub criterion: bool,
    /// Hidden: this process is one mode of the comparison of modes, see [`crate::modes`].
    pub mode_cells: bool,
}

impl Args {
    /// This process's. Says what is wrong and exits if it does not understand them.
    pub fn parse() -> Self {
        Self::read(lexopt::Parser::from_env()).unwrap_or_else(|error| {
            eprintln!("{error}\n\n{HELP}");
            exit(2)
        })
    }

    fn read(mut parser: lexopt::Parser) -> Result<Self, lexopt::Error> {
        let mut args = Args::default();
        while let Some(arg) = parser.next()? {
            match arg {
                // Cargo passes this one.
                Long("bench") => {}
                Long("quick") => args.quick = true,
                Long("filter") => args.filter = parser.value()?.string()?,
                Value(text) => args.filter = text.string()?,
                Long("criterion") => args.criterion = true,
                Long("mode-cells") => args.mode_cells = true,
                Long("help") => {
                    println!("{HELP}");
                    exit(0)
                }
                _ => return Err(arg.unexpected()),
            }
        }
        Ok(args)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_may_stand_alone_and_cargos_flag_is_ignored() {
        let args = Args::read(lexopt::Parser::from_args(["--bench", "--quick", "pair"])).unwrap();
        assert!(args.quick && !args.criterion);
        assert_eq!(args.filter, "pair");
        assert!(Args::read(lexopt::Parser::from_args(["--unknown"])).is_err());
    }
}
