//! What must be true in each state, and after each step.

use super::{
    Handler, Setting, Violation,
    facts::{Kept, Kind},
    protocol::Protocol,
    world::{At, Sent, World},
};

/// The property that this step violates.
pub fn check(setting: &Setting, protocol: &Protocol, before: &World, after: &World) -> Option<Violation> {
    let honest = !after.lied && !after.ruled && !after.meddled && setting.handler != Handler::RunsAgain;
    let effects = after.effects(setting.handler == Handler::Resumes);
    if honest && effects > 1 {
        return Some(Violation::TwoEffects);
    }
    // Whatever else happens to the record.
    if after.workers.iter().any(|worker| worker.commits > 1) {
        return Some(Violation::Rows);
    }
    if let Some(violation) = after.outbox.check(&before.outbox) {
        return Some(violation);
    }
    let commits: u8 = after.present().map(|worker| worker.commits).sum();
    let facts = *protocol.facts(after.record?);
    if facts.state != Kind::Completed {
        if facts.expires_at.is_some() || facts.state == Kind::Released {
            return Some(Violation::TimeToLive);
        }
        // A record that is written anew after a deletion may need what was deleted since: it ends, in time.
        if after.requests & 1 << after.life == 0 && !after.meddled {
            return Some(Violation::RequestMissing);
        }
    }
    if after.outbox.published.count_ones() != facts.messages && setting.messages {
        return Some(Violation::Overwritten);
    }
    if commits != u8::from(facts.with_writes) && !setting.messages && !after.meddled {
        return Some(Violation::Rows);
    }
    let same = before.life == after.life && before.meddled == after.meddled;
    let was = before.record.filter(|_| same).map(|id| *protocol.facts(id))?;
    if was.state == Kind::Completed {
        return (facts.answer != was.answer).then_some(Violation::TwoAnswers);
    }
    let is_undone = facts.state == Kind::Pending || facts.answer == Some(Kept::Abandoned);
    if facts.phases < was.phases || is_undone && was.phases > 0 {
        return Some(Violation::LostPhase);
    }
    let heard = after.present().any(|worker| worker.heard) && !after.ruled;
    let undenied = !after.denied && !after.ruled && !after.meddled;
    let sent = after.present().any(|worker| matches!(worker.sent, Sent::OnItsWay(_)));
    // Until a claim is taken back, nobody knows that its handler did not begin.
    let tried = after.present().filter(|worker| worker.tried || worker.at == At::Untried).count();
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
