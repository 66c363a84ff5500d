//! A store whose files were changed: it opens or refuses, reading ends, and what takes a message
//! can be stopped and started again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use roquet_core::commit_log::PutStatus;
use roquet_core::store::get::Wanted;
use roquet_core_fuzz::common::sim_disk::SimDisk;
use roquet_core_fuzz::common::world::{Promise, Step, World, BATCH, LARGE, OTHER, SMALL, TOPICS};
use std::cell::OnceCell;
use std::path::PathBuf;

type Files = Vec<(PathBuf, Vec<u8>)>;

/// A store after kill -9 and one that was stopped, with several files of each kind.
fn images() -> [Files; 2] {
    let steps = [SMALL, OTHER, BATCH, Step::Flush, Step::Dispatch, LARGE];
    let mut world = World::new(true);
    for step in steps.iter().cycle().take(60) {
        world.step(*step);
    }
    world.step(Step::Delete(1));
    world.step(Step::Checkpoint);
    world.step(OTHER);
    let killed = world.disk.files();
    world.step(Step::Restart);
    world.step(Step::Restart);
    if let Some(store) = world.store.take() {
        store.close().expect("a disk that works");
    }
    [killed, world.disk.files()]
}

/// Makes the changes that `data` says, six bytes each.
fn change(files: &mut Files, data: &[u8]) {
    for edit in data.chunks_exact(6) {
        let &[which, how, high, low, value, more] = edit else {
            return;
        };
        if files.is_empty() {
            return;
        }
        let which = usize::from(which) % files.len();
        let Some((_, bytes)) = files.get_mut(which) else {
            return;
        };
        let at = usize::from(u16::from_be_bytes([high, low])) % bytes.len().max(1);
        match how % 8 {
            0 => bytes.truncate(at),
            1 => bytes.extend(std::iter::repeat_n(value, usize::from(more))),
            2 => drop(files.remove(which)),
            3 => bytes[at..].iter_mut().take(64).for_each(|byte| *byte = 0),
            4 | 5 => bytes[at..]
                .iter_mut()
                .zip([value, more])
                .for_each(|(byte, new)| *byte = new),
            _ => bytes[at..]
                .iter_mut()
                .take(1)
                .for_each(|byte| *byte ^= value),
        }
    }
}

fn read(world: &World) {
    let Some(store) = &world.store else {
        return;
    };
    for topic in TOPICS {
        for queue_id in 0..2 {
            let mut offset = 0;
            for _ in 0..64 {
                let got = store.get(Wanted {
                    topic,
                    queue_id,
                    offset,
                    messages: 8,
                    bytes: 1 << 20,
                    tag_codes: None,
                    filter: None,
                });
                match got {
                    Ok(got) if got.messages > 0 => offset = got.next.max(offset + 1),
                    _ => break,
                }
            }
            let _ = store.offset_by_time(topic, queue_id, 1_700_000_000_010, true);
        }
        let _ = store.query(topic, "k3", 32, 0, i64::MAX);
    }
}

fuzz_target!(|data: &[u8]| {
    thread_local!(static IMAGES: OnceCell<[Files; 2]> = const { OnceCell::new() });
    let Some((first, edits)) = data.split_first() else {
        return;
    };
    let mut files =
        IMAGES.with(|images| images.get_or_init(images_once)[usize::from(first % 2)].clone());
    change(&mut files, edits);
    let disk = SimDisk::new();
    for (path, bytes) in &files {
        disk.plant(path, bytes);
    }
    let boot = u64::from(first / 2 % 2) + 1;
    let mut world = World::resume(disk, true, Promise::default(), boot);
    read(&world);
    let Some(store) = world.store.clone() else {
        return;
    };
    if world.put(&store, 0, 50, 1) != PutStatus::Ok || store.flush().is_err() {
        return;
    }
    world.step(Step::Dispatch);
    read(&world);
    drop(store);
    world.step(Step::Restart);
    read(&world);
});

fn images_once() -> [Files; 2] {
    images()
}
