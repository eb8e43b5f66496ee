use std::cell::RefCell;
use std::fs;
use std::rc::Rc;
use std::time::Instant;

use super::*;
use crate::erlang::code::tests::put_module;
use crate::erlang::hostile::{DATA, MODULES, set, vm};
use crate::memory::Pieces;
use crate::native;

/// An executable without functions.
const EXECUTABLE: &[u8] = include_bytes!("../../../../fuzz/corpus/program/fixed");

/// Memory that changes while it is read.
#[derive(Debug, Clone)]
struct Shared(Rc<RefCell<Pieces>>);

impl Memory for Shared {
    fn read(&self, address: u64, out: &mut [u8]) -> bool {
        self.0.borrow().read(address, out)
    }
}

/// The files of process 7: the executable, its static data, and generated code.
fn files() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let executable = root.path().join("vm");
    fs::write(&executable, EXECUTABLE).unwrap();
    fs::create_dir_all(root.path().join("proc/7")).unwrap();
    std::os::unix::fs::symlink(&executable, root.path().join("proc/7/exe")).unwrap();
    let path = executable.display();
    let (data, code) = (DATA..DATA + 4096, MODULES[0]..MODULES[1] + 4096);
    let lines = [
        format!("400000-401000 r-xp 00000000 fe:00 7 {path}"),
        format!("{:x}-{:x} rw-p 00001000 fe:00 7 {path}", data.start, data.end),
        format!("{:x}-{:x} rwxp 00000000 00:00 0 ", code.start, code.end),
    ];
    let maps = lines.join("\n");
    fs::write(root.path().join("proc/7/maps"), maps).unwrap();
    root
}

/// A sample of a thread that runs generated code.
fn sample(ip: u64) -> Sample<'static> {
    let mut registers = RegisterSet { ip, ..RegisterSet::default() };
    registers.values[native::SP] = Some(0x5000);
    Sample { t: 0, kernel: &[], registers: Some(registers), stack: &[] }
}

#[test]
fn an_address_has_the_name_of_the_code_that_is_there_now() {
    let mut pieces = vm();
    pieces.0.get_mut(&DATA).unwrap().resize(4096, 0);
    let memory = Shared(Rc::new(RefCell::new(pieces)));
    let files = files();
    let tree = LocalTree::at(files.path());
    let image = Image::read(&tree, 7).unwrap();
    let mut stacks = VmStacks::of(&tree, image, memory.clone(), 1).unwrap();
    let mut builder = ProfileBuilder::default();
    // The code header has 17 words and two addresses.
    let ip = MODULES[0] + 8 * 19 + 50;
    let mut frames_at = |stacks: &mut VmStacks<Shared>, ip: u64| {
        let frames = stacks.stack(&sample(ip), ThreadKind::Scheduler, &mut builder).frames;
        let found = frames.iter().map(|index| builder.profile().frames[*index as usize].clone());
        found.map(|frame| (frame.name, frame.line)).collect::<Vec<_>>()
    };
    let old = [("shop:cart/1".to_owned(), Some(12))];
    assert_eq!(frames_at(&mut stacks, ip), old);
    assert_eq!(frames_at(&mut stacks, ip), old);
    // Code is loaded: `shop:loop/0` replaces `shop:cart/1`.
    let end = put_module(&mut memory.0.borrow_mut(), MODULES[0], 3, &[(5, 0)]).1;
    set(&mut memory.0.borrow_mut(), 0x60_0000, 1, end + 8);
    stacks.erlang.as_mut().unwrap().next_refresh = Instant::now();
    stacks.follow_code();
    assert_eq!(frames_at(&mut stacks, ip), [("shop:loop/0".to_owned(), None)]);
    assert_eq!(builder.profile().frames.len(), 2);
}
