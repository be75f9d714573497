//! What must be true in each state, and after each step.

use super::world::{Accepted, Own, Queues, Worker, World};
use crate::kernel::{
    action::Action,
    ending::{Command, Progress},
    facts::{Facts, Kept, State},
    protocol::Protocol,
    records::Name,
    report::Report,
    setting::{Handler, Setting},
    violation::Violation,
    world::{At, Kind, Sent, With},
};

/// The phase of the handler.
pub const PHASE: Name = Name::Charge;

impl Kind for Accepted {
    type Worker = Own;
    /// The last one works only at rest.
    type Workers = [Worker; 4];
    type Own = Queues;

    const NAME: &'static str = "accepted";
    const IDLE: Own = Own { tried: false };
    const WORKERS: [Worker; 4] = [Worker::IDLE; 4];
    const START: Queues = Queues::EMPTY;

    fn phases(_: &Setting, _: bool) -> &'static [Name] {
        &[PHASE]
    }

    fn judge(
        setting: &Setting,
        protocol: &Protocol,
        _: Action,
        (before, after): (&World, &World),
        violation: Option<Violation>,
    ) -> Option<Violation> {
        violation.or_else(|| check(setting, protocol, before, after))
    }

    fn forget(world: &mut World) {
        let (life, alarm) = (world.life, world.alarms != 0);
        for worker in &mut world.workers {
            if worker.at != At::Over || worker.deferred.is_some() {
                continue;
            }
            (worker.base, worker.clock) = (0, 0);
            if worker.life != life && !worker.webhook {
                *worker = Worker { at: At::Over, told: worker.told && !alarm, ..Worker::IDLE };
            }
        }
    }

    fn commit(world: &mut World, with: With) {
        match with {
            With::Nothing => {}
            With::Life => world.accept(),
            With::Rows(worker) => world.worker_mut(worker).commits += 1,
            With::Messages(numbers) => world.own.outbox.publish(numbers),
        }
    }

    fn pruned(world: &mut World, _: &Facts) {
        world.question = None;
    }

    fn begins(world: &mut World, worker: u8) {
        world.worker_mut(worker).own.tried = true;
    }

    fn denies(world: &mut World) {
        world.own.denied = true;
    }

    fn follows(
        world: &mut World,
        (setting, _): (&Setting, &Protocol),
        (worker, report, said): (u8, Report, &Progress),
        command: Command,
    ) -> Option<Violation> {
        if let Command::Tells(_) = command {
            // It has reached the record, unless its transaction can no longer commit.
            let is_known = setting.handler != Handler::Commits && said.write.is_none();
            world.worker_mut(worker).told |= is_known && report.is_effect();
        }
        None
    }
}

/// The property that this step violates.
fn check(setting: &Setting, protocol: &Protocol, before: &World, after: &World) -> Option<Violation> {
    let honest = !after.lied && !after.ruled && !after.meddled && setting.handler != Handler::RunsAgain;
    let effects = after.effects(setting.handler == Handler::Resumes);
    if honest && effects > 1 {
        return Some(Violation::TwoEffects);
    }
    // Whatever else happens to the record.
    if after.workers.iter().any(|worker| worker.commits > 1) {
        return Some(Violation::Rows);
    }
    if let Some(violation) = after.own.outbox.check(&before.own.outbox) {
        return Some(violation);
    }
    let commits: u8 = after.present().map(|worker| worker.commits).sum();
    let facts = *protocol.facts(after.id()?);
    if facts.state != State::Completed {
        if facts.expires_at.is_some() || facts.state == State::Released {
            return Some(Violation::TimeToLive);
        }
        // A record that is written anew after a deletion may need what was deleted since: it ends, in time.
        if after.own.requests & 1 << after.life == 0 && !after.meddled {
            return Some(Violation::RequestMissing);
        }
    }
    if after.own.outbox.published.count_ones() != facts.messages && setting.messages {
        return Some(Violation::Overwritten);
    }
    if commits != u8::from(facts.with_writes) && !setting.messages && !after.meddled {
        return Some(Violation::Rows);
    }
    let same = before.life == after.life && before.meddled == after.meddled;
    let was = before.id().filter(|_| same).map(|id| *protocol.facts(id))?;
    if was.state == State::Completed {
        return (facts.answer != was.answer).then_some(Violation::TwoAnswers);
    }
    let is_undone = facts.state == State::Pending || facts.answer == Some(Kept::Abandoned);
    if facts.phases < was.phases || is_undone && was.phases > 0 {
        return Some(Violation::LostPhase);
    }
    let heard = after.effect_was_heard() && !after.ruled;
    let undenied = !after.own.denied && !after.ruled && !after.meddled;
    let sent = after.present().any(|worker| matches!(worker.sent, Sent::OnItsWay { .. }));
    // Until a claim is taken back, nobody knows that its handler did not begin.
    let tried = after.present().filter(|worker| worker.own.tried || worker.is_untried()).count();
    let in_time = before.now + setting.skew < was.claim_by;
    let is_left = !after.ruled && !after.meddled;
    match facts.answer {
        Some(Kept::Abandoned) if in_time && is_left && tried < setting.max_attempts as usize => {
            Some(Violation::NeverTried)
        }
        // "Not found" is no proof, and a worker that died has said nothing.
        Some(Kept::Abandoned) if heard || undenied && (effects > 0 || sent) => {
            Some(Violation::FalseAbandonment)
        }
        Some(Kept::Refusal(_)) if heard => Some(Violation::RefusalOverEffect),
        _ => None,
    }
}
