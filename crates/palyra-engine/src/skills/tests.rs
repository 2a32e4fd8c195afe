//! A thousand skills: listed without opening one, audited again without reading one.

use super::{InstallOptions, News, SkillSetup};
use crate::flow::tests::{House, owner};
use palyra_skills::PublisherKey;
use palyra_skills::archive::Entry;
use palyra_skills::instructions::{ImportRequest, import_files};
use palyra_skills::package::build;
use std::fs;
use std::time::Duration;

const MANY: usize = 1000;

/// A skill of one text.
fn artifact(number: usize, key: &PublisherKey) -> Vec<u8> {
    let request = ImportRequest {
        publisher: "acme".parse().unwrap(),
        version: "1.0.0".parse().unwrap(),
        read_roots: vec![],
        write_roots: vec![],
        egress: vec![],
        min_palyra_version: "0.1.0".parse().unwrap(),
    };
    let text = format!("---\nname: s{number}\ndescription: Number {number}.\n---\nNothing.\n");
    let source = import_files(vec![Entry::new("SKILL.md", text.into_bytes())], &request).unwrap();
    build(&source, key).unwrap().bytes
}

async fn opened(house: &House) {
    let setup = SkillSetup {
        state_dir: house.state(),
        version: "0.1.0".to_owned(),
        audit_policy: None,
        advisories: None,
        audit_interval: Duration::from_secs(3600),
        keep_record_bytes: 1 << 20,
    };
    house.engine.start_skills(setup).await;
}

fn listed(house: &House) -> usize {
    let catalog = house.engine.catalog();
    catalog.iter().filter(|tool| tool.name().as_str().starts_with("skill.")).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_skills_are_listed_unopened_and_audited_again_unread() {
    let house = House::with_rules("").await;
    opened(&house).await;
    let key = PublisherKey::generate().unwrap();
    for number in 0..MANY {
        let options = InstallOptions { allow_tofu: number == 0, ..InstallOptions::default() };
        house.engine.install_skill(&owner(), artifact(number, &key), options, News::nobody()).await.unwrap();
    }
    assert_eq!(listed(&house), MANY);
    // A start reads each artifact once; what was installed a moment ago is looked at until its times can be believed.
    let house = house.restarted().await;
    opened(&house).await;
    assert_eq!(listed(&house), MANY);
    let first = house.engine.check_skills(&owner()).await.unwrap().pass.unwrap();
    assert_eq!((first.read, first.unchanged), (MANY, 0));
    let again = loop {
        let pass = house.engine.check_skills(&owner()).await.unwrap().pass.unwrap();
        assert_eq!(pass.read + pass.unchanged, MANY);
        if pass.read == 0 {
            break pass;
        }
    };
    assert_eq!(again.unchanged, MANY);
    // Without its artifacts the listing is the same: none is opened for it.
    let listing = serde_json::to_value(house.engine.skill_list(&owner()).unwrap()).unwrap();
    fs::rename(house.state().join("skills-managed"), house.state().join("away")).unwrap();
    assert_eq!(serde_json::to_value(house.engine.skill_list(&owner()).unwrap()).unwrap(), listing);
    assert_eq!(listing["skills"].as_array().unwrap().len(), MANY);
    fs::rename(house.state().join("away"), house.state().join("skills-managed")).unwrap();
    // One that changed is the one that is read.
    fs::write(house.state().join("skills-managed/acme.s7/1.0.0/SKILL.md"), "other").unwrap();
    let changed = house.engine.check_skills(&owner()).await.unwrap();
    assert_eq!(changed.pass.unwrap().read, 1);
    assert_eq!(changed.skills.iter().filter(|skill| !skill.eligible).count(), 1);
    assert_eq!(listed(&house), MANY - 1);
}
