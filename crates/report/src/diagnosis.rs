//! A diagnosis as text: worst first, each finding with evidence, remedy and proof, then what looked
//! healthy, then what could not be judged and why.

use std::collections::HashMap;

use beamtune_flags::Kind;
use beamtune_model::units::SECOND_NS;
use beamtune_model::{Cost, Diagnosis, Evidence, Finding, Follows, Level, Outcome, Period, Verdict, facts};

use crate::account;
use crate::kinds;
use crate::text::{self, Style};

/// The whole answer of `doctor` and `diagnose`.
pub fn render(period: &Period, diagnosis: &Diagnosis, style: Style) -> String {
    // Of a node there are better ways to tell it than by the VM's own sums.
    let is_text = period.is_imported() && !period.is_crash_dump();
    let kinds = Some(kinds::render(period, style)).filter(|kinds| is_text && !kinds.is_empty());
    let kinds = kinds.map_or(String::new(), |kinds| format!("{kinds}\n"));
    format!(
        "{}\n{kinds}{}{}",
        heading(period, style),
        verdicts(period, diagnosis, style),
        gaps(period, style)
    )
}

/// Products whose scripts start the VM, by the beginning of their names, and where they take its flags from.
const FLAGS_GO: [(&str, &str); 2] = [
    (
        "RabbitMQ",
        "SERVER_ADDITIONAL_ERL_ARGS in rabbitmq-env.conf, or RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS in the environment of its service",
    ),
    ("ejabberd", "ERL_OPTIONS in ejabberdctl.cfg"),
];

/// Where flags go that remedies name, of a product that has a place of its own for them.
fn flags_go(period: &Period, findings: &[&Finding]) -> Option<String> {
    let product = period.facts.get(facts::PRODUCT)?;
    let (name, place) = FLAGS_GO.iter().find(|(name, _)| product.starts_with(name))?;
    let is_flag =
        |entry: &str| beamtune_flags::entry(entry).is_some_and(|entry| entry.kind == Kind::EmulatorFlag);
    let mut remedies = findings.iter().flat_map(|finding| &finding.remedies);
    remedies.any(|remedy| is_flag(&remedy.entry)).then(|| format!("Of {name} flags go into {place}."))
}

/// What was found and where flags go that help, where the CPUs went, what looked healthy, and what could not be judged.
pub fn verdicts(period: &Period, diagnosis: &Diagnosis, style: Style) -> String {
    let findings = diagnosis.findings();
    let mut out = String::new();
    if findings.is_empty() {
        let is_judged = |verdict: &Verdict| !matches!(verdict.outcome, Outcome::NotJudged { .. });
        out.push_str(&match diagnosis.verdicts.is_empty() || diagnosis.verdicts.iter().any(is_judged) {
            true => format!("{}\n", style.good("Nothing found.")),
            false => "Nothing could be judged.\n".to_owned(),
        });
    }
    for finding in &findings {
        let cause =
            finding.follows.as_ref().and_then(|follows| findings.iter().find(|one| one.code == follows.code));
        // Its advice may be another one, and is not for now.
        let is_advised = cause.is_none_or(|cause| cause.level < finding.level);
        out.push_str(&render_finding(finding, is_advised, style));
        out.push('\n');
    }
    if let Some(told) = flags_go(period, &findings) {
        out.push_str(&format!("{}\n\n", text::wrap(&told, style.width, "")));
    }
    if let Some(cpu) = &diagnosis.cpu {
        out.push_str(&format!("{}\n", account::render(cpu, style)));
    }
    out.push_str(&rest(diagnosis, style));
    diagnosis.latent().into_iter().for_each(|finding| out.push_str(&render_latent(finding, style)));
    out
}

/// A defect that nothing shows at work: a line for each part of it, and what mends all.
fn render_latent(finding: &Finding, style: Style) -> String {
    let body = style.width.saturating_sub(4).max(40);
    let title = text::wrap(&text::sentence(&finding.summary), body, "");
    let mut out = format!("{}\n", style.bold(&title));
    for evidence in &finding.evidence {
        let line = format!("{}: {}", text::sentence(&evidence.what), evidence_text(evidence));
        out.push_str(&format!("  {}\n", text::wrap(&line, body, "      ")));
    }
    for against in &finding.against {
        out.push_str(&format!("  but {}\n", text::wrap(&text::sentence(against), body, "      ")));
    }
    for remedy in &finding.remedies {
        let change = text::wrap(&text::sentence(&remedy.change), body, "      ");
        out.push_str(&format!("  {}  {change} ({} {})\n", style.good("do"), finding.code, finding.rule));
    }
    out
}

/// What was looked at: node, releases, product, time.
pub fn heading(period: &Period, style: Style) -> String {
    let facts = &period.facts;
    let mut first = vec![style.bold(&text::clean(node_title(period)))];
    first.extend(facts.get(facts::PRODUCT).map(text::clean));
    if let Some(otp) = facts.get(facts::OTP_VERSION).or(facts.get(facts::OTP_RELEASE)) {
        let flavor = facts.get(facts::EMU_FLAVOR).map_or(String::new(), |flavor| format!(" ({flavor})"));
        first.push(text::clean(&format!("OTP {otp}{flavor}")));
    }
    let mut second = Vec::new();
    if let Some(online) = facts.get(facts::SCHEDULERS_ONLINE) {
        second.push(format!("{} schedulers online", text::clean(online)));
    }
    if let Some(cpus) = facts.get(facts::HOST_CPUS) {
        second.push(format!("{} CPUs", text::clean(cpus)));
    }
    second.push(extent(period));
    if period.lives > 1 {
        second.push(format!(
            "the VM was started {} times in this recording; this is one of its lives",
            period.lives
        ));
    }
    second.extend(clock_difference(period));
    let synthetic = facts.get(facts::SYNTHETIC).map_or(String::new(), |what| {
        let told = format!("SYNTHETIC, nobody has measured this: {}", text::clean_words(what));
        format!("{}\n", style.bold(&text::wrap(&told, style.width, "")))
    });
    let changed = match period.thresholds.names().len() {
        0 => String::new(),
        1 => format!("1 threshold changed by {}\n", text::clean(&period.thresholds.file)),
        count => format!("{count} thresholds changed by {}\n", text::clean(&period.thresholds.file)),
    };
    format!("{}\n{}\n{changed}{synthetic}", first.join(" · "), style.dim(&second.join(" · ")))
}

/// How much of it there is.
pub fn extent(period: &Period) -> String {
    match period.facts.get(facts::IMPORTED_FROM) {
        Some(facts::CRASH_DUMP) => match period.facts.get(facts::CRASH_TIME) {
            Some(time) => format!("a crash dump of {}", text::clean(time)),
            None => "a crash dump".to_owned(),
        },
        Some(tools) => {
            let have = if tools.contains(", ") { "have" } else { "has" };
            let remark = period.facts.get(facts::IMPORTED_REMARK);
            let remark = remark.map_or(String::new(), |remark| format!(" ({})", text::clean_words(remark)));
            format!("what {} {have} printed{remark}", text::clean(tools))
        }
        None => format!("{} samples in {}", period.ticks, text::seconds(period.seconds())),
    }
}

/// A wall clock that is wrong by a second confuses whoever compares logs.
fn clock_difference(period: &Period) -> Option<String> {
    let ahead = period.host_wall_ahead()?;
    let seconds = ahead.unsigned_abs() as f64 / SECOND_NS as f64;
    (seconds >= 1.0).then(|| {
        let by = text::seconds(seconds);
        format!("its clock is {by} {} the recorder's", if ahead > 0 { "ahead of" } else { "behind" })
    })
}

/// Node name, or what else is known of a VM without one.
pub fn node_title(period: &Period) -> &str {
    let named = period.incarnation.as_ref().map(|inc| inc.node.as_str()).filter(|node| !node.is_empty());
    let imported = period.facts.get(facts::IMPORTED_FROM).filter(|from| *from != facts::CRASH_DUMP);
    let imported = imported.map(|_| "imported text");
    named.or(period.facts.get(facts::NODE_NAME)).or(imported).unwrap_or("VM without distribution")
}

/// With what to do, if it is to be advised: not where its cause is to be mended first.
fn render_finding(finding: &Finding, is_advised: bool, style: Style) -> String {
    let label = match finding.level {
        Level::Critical => "CRITICAL",
        Level::Warning => "WARNING",
        Level::Notice => "notice",
    };
    let body = style.width.saturating_sub(4).max(40);
    let cost = finding.claim.map_or(String::new(), |claim| format!(" · {}", cost_text(claim.cost)));
    let mut out = format!(
        "{}  {} {}{cost}\n    {}\n",
        style.level(finding.level, &format!("{label:<8}")),
        finding.code,
        style.dim(finding.rule),
        style.bold(&text::wrap(&text::sentence(&finding.summary), body, "    ")),
    );
    if let Some(Follows { code, rule, why }) = &finding.follows {
        let told = format!("follows from {code} {rule}: {why}");
        out.push_str(&format!("    {}\n", style.dim(&text::wrap(&told, body, "    "))));
    }
    let names: Vec<_> = finding.evidence.iter().map(|evidence| text::sentence(&evidence.what)).collect();
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0).min(60);
    for (name, evidence) in names.iter().zip(&finding.evidence) {
        let line = format!("{name:<width$}  {}", evidence_text(evidence));
        out.push_str(&format!("      {}\n", text::wrap(&line, body.max(width + 30), &" ".repeat(width + 8))));
    }
    for against in &finding.against {
        out.push_str(&format!(
            "    but    {}\n",
            text::wrap(&text::sentence(against), body - 7, "           ")
        ));
    }
    if !is_advised {
        return out;
    }
    if !finding.confirm.is_empty() {
        let check = text::wrap(finding.confirm, body - 7, "           ");
        out.push_str(&format!("    {}  {check}\n", style.dim("check")));
    }
    for remedy in &finding.remedies {
        let valid = [
            (!matches!(remedy.releases.as_str(), "" | "all")).then(|| format!("OTP {}", remedy.releases)),
            remedy.at_run_time.then(|| "at run time".to_owned()),
        ];
        let valid: Vec<_> = valid.into_iter().flatten().collect();
        let valid = if valid.is_empty() { String::new() } else { format!("  [{}]", valid.join(", ")) };
        out.push_str(&format!(
            "    {}     {}{}\n",
            style.good("do"),
            style.bold(&text::wrap(&text::sentence(&remedy.change), body - 7, "           ")),
            style.dim(&valid)
        ));
        let mut lines = vec![("why", &remedy.why)];
        if !remedy.risk.is_empty() {
            lines.push(("risk", &remedy.risk));
        }
        let saves = remedy.saves_bytes.map(|bytes| {
            format!(
                "about {} of resident memory: an estimate, until a trial has shown it",
                text::bytes(bytes)
            )
        });
        lines.extend(saves.as_ref().map(|saves| ("saves", saves)));
        lines.push(("prove", &remedy.prove));
        for (name, words) in lines {
            let line = text::wrap(&text::sentence(words), body - 14, "                  ");
            out.push_str(&format!("           {} {line}\n", style.dim(&format!("{name:<6}"))));
        }
    }
    out
}

/// What is at stake, in a few words. It is an estimate.
fn cost_text(cost: Cost) -> String {
    match cost {
        Cost::CpuCores(cores) => format!("costs {cores:.2} cores"),
        Cost::MemoryBytes(bytes) => format!("costs {} of memory", text::bytes(bytes)),
        Cost::DelaySeconds(seconds) => format!("delays of {}", text::seconds(seconds)),
        Cost::Waiting(count) => format!("{} waiting", text::decimal(count)),
        Cost::EndSeconds(seconds) => format!("{} left", text::seconds(seconds)),
    }
}

fn evidence_text(evidence: &Evidence) -> String {
    let mut parts = Vec::new();
    parts.extend(evidence.value.map(|value| text::value(value, evidence.unit)));
    parts.extend(evidence.text.as_deref().map(text::sentence));
    if let Some(threshold) = evidence.threshold {
        parts.push(format!("(warning from {})", text::value(threshold, evidence.unit)));
    }
    parts.join("  ")
}

fn rest(diagnosis: &Diagnosis, style: Style) -> String {
    let mut healthy = String::new();
    let mut not_judged: Vec<(Vec<String>, String)> = Vec::new();
    let body = style.width.saturating_sub(8).max(40);
    for verdict in &diagnosis.verdicts {
        match &verdict.outcome {
            Outcome::Found(_) => {}
            Outcome::Healthy(sentence) => {
                healthy.push_str(&format!(
                    "  {} {}\n",
                    verdict.code,
                    text::wrap(&text::sentence(sentence), body, "        ")
                ));
            }
            Outcome::NotJudged { reason, next } => {
                let name = format!("{} {}", verdict.code, verdict.rule);
                let why = format!("{}; next: {next}", text::sentence(reason));
                // Of a crash dump or of imported text, most have one reason.
                match not_judged.iter_mut().find(|(_, known)| *known == why) {
                    Some((names, _)) => names.push(name),
                    None => not_judged.push((vec![name], why)),
                }
            }
        }
    }
    let mut out = String::new();
    if !healthy.is_empty() {
        out.push_str(&format!("{}\n{healthy}", style.good("Looked healthy")));
    }
    if !not_judged.is_empty() {
        out.push_str(&format!("{}\n", style.bold("Not judged")));
        not_judged.sort_by_key(|(names, _)| names.len());
        for (names, why) in not_judged {
            let told = format!("{}: {why}", names.join(", "));
            out.push_str(&format!("  {}\n", text::wrap(&told, body, "        ")));
        }
    }
    out
}

/// What was not measured, merged by reason.
fn gaps(period: &Period, style: Style) -> String {
    let (mut reasons, mut places) = (Vec::<(&str, &str, f64)>::new(), HashMap::new());
    for gap in &period.gaps {
        let place = *places.entry((&gap.source, &gap.reason)).or_insert_with(|| {
            reasons.push((&gap.source, &gap.reason, 0.0));
            reasons.len() - 1
        });
        if let Some((_, _, seconds)) = reasons.get_mut(place) {
            *seconds += gap.end.saturating_sub(gap.begin) as f64 / 1e9;
        }
    }
    if reasons.is_empty() {
        return String::new();
    }
    let mut out = format!("{}\n", style.bold("Not measured"));
    for (source, reason, seconds) in reasons {
        let length = if seconds > 0.0 { format!(" ({})", text::seconds(seconds)) } else { String::new() };
        out.push_str(&format!("  {}{length}: {}\n", text::clean(source), text::sentence(reason)));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use beamtune_model::window::Point;
    use beamtune_model::{
        Account, Claim, Code, Confidence, Facts, PeriodBuilder, Remedy, Series, Subject, Unit, metrics,
    };

    #[test]
    fn a_clock_that_is_wrong_is_told_where_that_is_sure() {
        let check = |ahead_ms: i64, error_ms: i64, expect: Option<&str>| {
            let mut builder = PeriodBuilder::new(None, Facts::default(), 1);
            for (metric, ms) in [(&metrics::WALL_AHEAD, ahead_ms), (&metrics::WALL_AHEAD_ERROR, error_ms)] {
                let series = Series::of(metric, "");
                let value = ms.saturating_mul(1_000_000);
                builder.column(&series, [Point { t: 0, incarnation: 0, value }]);
            }
            let period = builder.finish();
            assert_eq!(clock_difference(&period).as_deref(), expect);
            assert_eq!(heading(&period, Style::PLAIN).contains("its clock"), expect.is_some());
        };
        check(3_200, 1, Some("its clock is 3.2 s ahead of the recorder's"));
        check(-90_000, 1, Some("its clock is 90 s behind the recorder's"));
        check(999, 1, None);
        check(0, 0, None);
        check(3_200, 4_000, None);
        check(i64::MIN, 0, Some("its clock is 106752.0 days behind the recorder's"));
        assert_eq!(clock_difference(&Period::default()), None);
    }

    #[test]
    fn a_recording_that_nobody_has_measured_says_so() {
        let mut made_up = Facts::default();
        made_up.set(facts::SYNTHETIC, "two memory nodes; sick");
        let told = |facts: Facts| heading(&PeriodBuilder::new(None, facts, 1).finish(), Style::PLAIN);
        assert!(told(made_up).contains("\nSYNTHETIC, nobody has measured this: two memory nodes; sick\n"));
        assert!(!told(Facts::default()).contains("SYNTHETIC"));
    }

    fn sick() -> Diagnosis {
        let finding = Finding {
            code: Code("BT006"),
            rule: "growing-message-queue",
            level: Level::Critical,
            severity: 80.0,
            left_seconds: None,
            confidence: Confidence::Measured,
            claim: None,
            summary: "the message queue of Elixir.Shop.Cart (<0.9.0>) grows by 12 messages a second"
                .to_owned(),
            subject: Some(Subject::process("Elixir.Shop.Cart (<0.9.0>)")),
            signals: Vec::new(),
            follows: Some(Follows {
                code: Code("BT005"),
                rule: "serial-process",
                why: "one cannot take what many send",
            }),
            latent: false,
            evidence: vec![
                Evidence::number("messages in its queue", 14_302.0, Unit::Count).against(5_000.0, "practice"),
                Evidence::text("where it was", "Elixir.Shop.Cart:handle_info/2"),
            ],
            against: vec!["it is young".to_owned()],
            confirm: "",
            remedies: vec![Remedy {
                entry: "code.back_pressure".to_owned(),
                change: "let senders wait".to_owned(),
                why: "memory ends".to_owned(),
                risk: "callers wait".to_owned(),
                releases: "all".to_owned(),
                at_run_time: false,
                prove: "the queue stays bounded".to_owned(),
                saves_bytes: None,
            }],
        };
        Diagnosis {
            verdicts: vec![
                Verdict {
                    code: Code("BT006"),
                    rule: "growing-message-queue",
                    outcome: Outcome::Found(vec![finding]),
                },
                Verdict {
                    code: Code("BT001"),
                    rule: "busy-waiting",
                    outcome: Outcome::Healthy("all is well".to_owned()),
                },
                Verdict {
                    code: Code("BT004"),
                    rule: "cpu-starved",
                    outcome: Outcome::NotJudged {
                        reason: "no host".to_owned(),
                        next: "run it there".to_owned(),
                    },
                },
            ],
            cpu: None,
        }
    }

    #[test]
    fn a_diagnosis_reads_from_worst_to_unknown() {
        let text = render(&Period::default(), &sick(), Style::PLAIN);
        let expect = "\
VM without distribution
0 samples in 0 µs

CRITICAL  BT006 growing-message-queue
    the message queue of Shop.Cart (<0.9.0>) grows by 12 messages a second
    follows from BT005 serial-process: one cannot take what many send
      messages in its queue  14,302  (warning from 5,000)
      where it was           Shop.Cart.handle_info/2
    but    it is young
    do     let senders wait
           why    memory ends
           risk   callers wait
           prove  the queue stays bounded

Looked healthy
  BT001 all is well
Not judged
  BT004 cpu-starved: no host; next: run it there
";
        assert_eq!(text, expect);
    }

    #[test]
    fn a_defect_that_nothing_shows_stands_at_the_end_and_is_nothing_found() {
        let latent = Finding {
            latent: true,
            summary: "OTP 25.2.3 has 11 known defects".to_owned(),
            evidence: vec![Evidence::text("OTP-19154", "a scheduler can be stuck for ever")],
            ..Finding::bare(Code("BT051"), 10.0)
        };
        let verdict =
            Verdict { code: Code("BT051"), rule: "known-fixes", outcome: Outcome::Found(vec![latent]) };
        let diagnosis = Diagnosis { verdicts: vec![verdict], cpu: None };
        let text = verdicts(&Period::default(), &diagnosis, Style::PLAIN);
        let expect = "\
Nothing found.
OTP 25.2.3 has 11 known defects
  OTP-19154: a scheduler can be stuck for ever
";
        assert_eq!(text, expect);
        let none = Diagnosis { verdicts: Vec::new(), ..diagnosis };
        assert!(none.latent().is_empty());
    }

    #[test]
    fn what_a_finding_costs_stands_beside_its_name() {
        let check = |cost: Option<Cost>, expect: &str| {
            let mut diagnosis = sick();
            if let Outcome::Found(found) = &mut diagnosis.verdicts[0].outcome {
                found[0].claim = cost.map(|cost| Claim {
                    account: Account::Delay,
                    part: None,
                    cost,
                    share: None,
                    explained: None,
                });
            }
            let text = render(&Period::default(), &diagnosis, Style::PLAIN);
            let line = text.lines().find(|line| line.starts_with("CRITICAL")).expect("a finding");
            assert_eq!(line, format!("CRITICAL  BT006 growing-message-queue{expect}"));
        };
        check(None, "");
        check(Some(Cost::CpuCores(0.914)), " · costs 0.91 cores");
        check(Some(Cost::MemoryBytes(1.23e9)), " · costs 1.23 GB of memory");
        check(Some(Cost::DelaySeconds(0.128)), " · delays of 128 ms");
        check(Some(Cost::Waiting(14_302.0)), " · 14,302 waiting");
        check(Some(Cost::EndSeconds(117.0)), " · 117 s left");
    }

    #[test]
    fn where_flags_go_is_told_of_products_that_have_a_place_for_them() {
        let told = |entry: &str, product: &str| {
            let mut diagnosis = sick();
            if let Outcome::Found(found) = &mut diagnosis.verdicts[0].outcome {
                found[0].remedies[0].entry = entry.to_owned();
            }
            let mut period = Period::default();
            period.facts.set(facts::PRODUCT, product);
            let text = render(&period, &diagnosis, Style::PLAIN);
            text.lines().find(|line| line.starts_with("Of ")).map(str::to_owned)
        };
        let rabbit = told("+sbwt", "RabbitMQ 3.10.8").expect("a place");
        assert!(rabbit.starts_with("Of RabbitMQ flags go into SERVER_ADDITIONAL_ERL_ARGS"), "{rabbit}");
        let ejabberd = told("+sbwt", "ejabberd 23.01");
        assert_eq!(ejabberd.as_deref(), Some("Of ejabberd flags go into ERL_OPTIONS in ejabberdctl.cfg."));
        assert_eq!(told("code.back_pressure", "RabbitMQ 3.10.8"), None, "no flag helps");
        assert_eq!(told("+sbwt", "Livebook 0.9"), None);
    }
}
