//! What had to hold, what did, and the exit status that follows.

use std::fmt::Display;
use std::process::ExitCode;
use std::sync::Arc;

use allotment::Tenant;

use crate::clients::Recovery;
use crate::ledger::Ledger;
use crate::wire::Stage;

#[derive(Default)]
pub struct Outcome {
    /// Checks and notes, held back so that no line falls into the live table.
    lines: Vec<String>,
    checks: usize,
    broken: usize,
}

impl Outcome {
    /// Records a claim, whether it holds, and how one can tell.
    pub fn check(&mut self, claim: &str, holds: bool, evidence: impl Display) {
        let verdict = if holds { "ok  " } else { "FAIL" };
        self.lines.push(format!("{verdict} {claim:<52} {evidence}"));
        self.checks += 1;
        self.broken += usize::from(!holds);
    }

    /// Adds to the evidence of the last check.
    pub fn note(&mut self, evidence: impl Display) {
        self.lines.push(format!("     {evidence}"));
    }

    /// Recounts every object in the process by its owner.
    pub fn check_verify(&mut self, claim: &str) {
        match allotment::verify() {
            Ok(verified) => self.check(claim, true, verified),
            Err(drift) => self.check(claim, false, drift),
        }
    }

    pub fn check_neighbours(&mut self, ledgers: &[(&'static str, Arc<Ledger>)]) {
        for (name, ledger) in ledgers {
            let lost = ledger.failed.get() + ledger.refused.get() + ledger.stopped.get();
            self.check(
                &format!("{name}: no request was lost"),
                ledger.ok.get() > 0 && lost == 0,
                format!("{} ok, {lost} lost {}", ledger.ok.get(), ledger.complaints()),
            );
            self.check(
                &format!("{name}: every answer was right"),
                ledger.validated.get() > 0 && ledger.failed.get() == 0,
                format!("{} answers checked", ledger.validated.get()),
            );
            self.check(
                &format!("{name}: served while the wild tenant was stopped"),
                ledger.ok_while_wild_stopped.get() > 0,
                format!("{} ok meanwhile", ledger.ok_while_wild_stopped.get()),
            );
        }
    }

    pub fn check_wild(&mut self, ledger: &Ledger, wild: Tenant, recovery: Recovery) {
        let name = wild.name();
        let (stopped, refused) = (ledger.stopped.get(), ledger.refused.get());
        self.check(
            &format!("{name}: stopped or refused, again and again"),
            stopped + refused > 1,
            format!("{stopped} + {refused} times"),
        );
        self.check(
            &format!("{name}: each 507 names tenant, limit and usage"),
            recovery.first_507.is_some() && ledger.failed.get() == 0,
            ledger.complaints(),
        );
        if let Some(body) = &recovery.first_507 {
            self.note(format!("the first: {body}"));
        }
        let (peak, limit) = (wild.peak(), wild.max().unwrap_or(0));
        self.check(
            &format!("{name}: stopped soon after its limit"),
            peak > limit && peak < limit + limit / 4,
            format!("peak {peak}, limit {limit}"),
        );
        let (usage, resumed) = match &recovery.cleared {
            Some(cleared) => (cleared.usage, cleared.resumed),
            None => (usize::MAX, false),
        };
        self.check(
            &format!("{name}: holds nothing once its data are deleted"),
            usage == 0,
            format!("settle() = {usage}"),
        );
        self.check(&format!("{name}: resumed, and accepted again"), resumed && recovery.accepted_again, "");
        self.check(
            &format!("{name}: one huge upload ends in the middle"),
            recovery.oversized == Some(Stage::Stopped),
            format!("{:?}", recovery.oversized),
        );
    }

    /// Prints all checks; the status is a failure if one of them is.
    pub fn conclude(self) -> ExitCode {
        for line in &self.lines {
            println!("{}", line.trim_end());
        }
        let checks = self.checks;
        if self.broken > 0 {
            println!("\n{} of {checks} checks failed", self.broken);
            return ExitCode::FAILURE;
        }
        println!("\nall {checks} checks hold");
        ExitCode::SUCCESS
    }
}
