//! Functions of the loaded code, by address.
//!
//! `r` (beam_ranges.c) holds three arrays of the address ranges of modules, one for each code index, each in a structure of four words:
//! `{modules, n, allocated, mid}`. A range begins with the module's code header (`BeamCodeHeader`, beam_code.h), whose first word is the number of
//! functions. Somewhere in it is `functions[]`: the address of each function, in ascending order, and the end of the code. At each of these
//! addresses is an `ErtsCodeInfo`: module and function as atoms, and the arity.
//!
//! The VM may load code meanwhile; modules that cannot be read then are counted ([`Code::unread`]), and found when the table is read again.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use super::StaticData;
use super::atoms::{Atoms, is_atom};
use super::lines::LineTable;
use crate::memory::{Memory, WORD_BYTES, is_pointer, words_of};

/// Arrays of ranges (`ERTS_NUM_CODE_IX`, code_ix.h).
const CODE_INDICES: usize = 3;
/// Words of the structure that holds an array.
const RANGES_WORDS: usize = 4;
/// Limit of modules. A node with every library of OTP has 2,000.
const MAX_MODULES: u64 = 100_000;
/// Limit of functions of all modules, and of names that are kept. RabbitMQ has 60,000 (measured, OTP 25).
const MAX_FUNCTIONS: usize = 1_000_000;
/// Words of a code header in which `functions[]` is searched; it is at word 11 to 19 in OTP 23 to 29 (measured).
const MAX_HEADER_WORDS: usize = 64;
/// Words of an `ErtsCodeInfo` in which the module is searched; it is at word 2 (measured).
const MAX_INFO_WORDS: usize = 6;
/// Words that name a function: module, function, arity.
const NAME_WORDS: usize = 3;
/// Largest arity (MAX_ARG, beam_opcodes.h: 255).
const MAX_ARITY: u64 = 255;
/// Modules that must be readable before ranges are believed.
const CHECKED_MODULES: usize = 8;

/// Module, function and arity.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FunctionName {
    /// Module.
    pub module: Arc<str>,
    /// Function.
    pub function: Arc<str>,
    /// Arity.
    pub arity: u8,
}

impl fmt::Display for FunctionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}/{}", self.module, self.function, self.arity)
    }
}

/// Identifies a function by name, also after its code was loaded again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FunctionId(pub u32);

/// A function at an address.
#[derive(Debug, Clone)]
pub struct Function {
    start: u64,
    end: u64,
    /// Its name ([`Code::name`]).
    pub id: FunctionId,
    /// Index of its module in [`Code::modules`], and its own index there.
    place: (u32, u32),
}

/// The code of a module.
#[derive(Debug, Clone)]
struct ModuleCode {
    start: u64,
    end: u64,
    /// The words of its code header before `functions[]`.
    header: Vec<u64>,
    functions: usize,
}

/// Where the parts of a module's code are, in words; the same for all modules of a VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Layout {
    /// Of `functions[]` in a code header.
    functions: usize,
    /// Of the module in an `ErtsCodeInfo`.
    name: usize,
}

/// The loaded code of a VM.
#[derive(Debug)]
pub struct Code {
    /// Address of the arrays of ranges.
    ranges: u64,
    /// The arrays as they were read last.
    arrays: Vec<Vec<u64>>,
    layout: Layout,
    modules: Vec<ModuleCode>,
    /// Sorted by address.
    functions: Vec<Function>,
    /// All names so far, by id.
    names: Vec<FunctionName>,
    ids: HashMap<FunctionName, FunctionId>,
    /// Modules that could not be read: their code was loaded or purged meanwhile.
    pub unread: usize,
}

impl Code {
    /// Finds the loaded code.
    pub fn find(memory: &impl Memory, data: &[StaticData], atoms: &Atoms) -> Option<Code> {
        data.iter().find_map(|data| {
            let windows = data.words.windows(CODE_INDICES * RANGES_WORDS).enumerate();
            windows.filter(|(_, words)| may_be_ranges(words)).find_map(|(index, words)| {
                let layout = Layout::find(memory, &ranges_in(&arrays(memory, words)?)?)?;
                let ranges = data.address + (index * WORD_BYTES) as u64;
                let mut code = Code {
                    ranges,
                    arrays: Vec::new(),
                    layout,
                    modules: Vec::new(),
                    functions: Vec::new(),
                    names: Vec::new(),
                    ids: HashMap::new(),
                    unread: 0,
                };
                code.refresh(memory, atoms);
                (!code.functions.is_empty()).then_some(code)
            })
        })
    }

    /// Reads the table again, since code may have been loaded or purged.
    pub fn refresh(&mut self, memory: &impl Memory, atoms: &Atoms) {
        let Some(arrays) = self.arrays_now(memory) else { return };
        let Some(ranges) = ranges_in(&arrays) else { return };
        self.arrays = arrays;
        let mut functions = Vec::new();
        let mut modules = Vec::new();
        self.unread = 0;
        for range in ranges {
            let room = MAX_FUNCTIONS.saturating_sub(functions.len());
            let index = modules.len() as u32;
            match self.layout.module(memory, range, room) {
                Some((module, starts)) => {
                    let names = self.layout.names(memory, &starts);
                    let named =
                        starts.windows(2).zip(names).enumerate().filter_map(|(place, (bounds, words))| {
                            let id = self.id_of(function_name(memory, atoms, words?)?)?;
                            Some(Function {
                                start: bounds[0],
                                end: bounds[1],
                                id,
                                place: (index, place as u32),
                            })
                        });
                    let named: Vec<Function> = named.collect();
                    let before = functions.len();
                    functions.extend(named);
                    self.unread += usize::from(functions.len() - before < module.functions);
                    modules.push(module);
                }
                None => self.unread += 1,
            }
        }
        functions.sort_by_key(|function| function.start);
        (self.modules, self.functions) = (modules, functions);
    }

    /// Whether no code was loaded or purged since the table was read.
    pub fn is_current(&self, memory: &impl Memory) -> bool {
        // While the table is written, it may not be readable.
        self.arrays_now(memory).is_none_or(|arrays| arrays == self.arrays)
    }

    fn arrays_now(&self, memory: &impl Memory) -> Option<Vec<Vec<u64>>> {
        arrays(memory, &memory.words(self.ranges, CODE_INDICES * RANGES_WORDS)?)
    }

    /// `None` if there are too many names.
    fn id_of(&mut self, name: FunctionName) -> Option<FunctionId> {
        if let Some(id) = self.ids.get(&name) {
            return Some(*id);
        }
        if self.names.len() >= MAX_FUNCTIONS {
            return None;
        }
        let id = FunctionId(self.names.len() as u32);
        self.names.push(name.clone());
        self.ids.insert(name, id);
        Some(id)
    }

    /// The name of a function.
    pub fn name(&self, id: FunctionId) -> Option<&FunctionName> {
        self.names.get(id.0 as usize)
    }

    /// The function at an address. For a return address, pass the address before it.
    pub fn function_at(&self, address: u64) -> Option<&Function> {
        let after = self.functions.partition_point(|function| function.start <= address);
        self.functions.get(after.checked_sub(1)?).filter(|function| address < function.end)
    }

    /// The source line of an address; `None` if the code has no line information there.
    pub fn line_at(&self, memory: &impl Memory, address: u64) -> Option<u32> {
        let (module, index) = self.function_at(address)?.place;
        let module = self.modules.get(module as usize)?;
        let table = LineTable::find(memory, &module.header, module.functions, module.start..module.end)?;
        table.line_at(memory, index as usize, address)
    }

    /// Number of modules.
    pub fn modules(&self) -> usize {
        self.modules.len()
    }

    /// Number of functions.
    pub fn functions(&self) -> usize {
        self.functions.len()
    }
}

/// Whether the words have the form of the arrays of ranges, without reading what they point to.
fn may_be_ranges(words: &[u64]) -> bool {
    let is_set = |words: &[u64]| {
        let [modules, n, allocated, mid] = words else { return false };
        let is_inside =
            *mid >= *modules && mid - modules <= n.saturating_mul(16) && (mid - modules) % 16 == 0;
        is_pointer(*modules) && (1..=*allocated).contains(n) && *allocated <= MAX_MODULES && is_inside
    };
    let mut arrays = words.chunks(RANGES_WORDS);
    arrays.next().is_some_and(is_set)
        && arrays.all(|words| is_set(words) || words.iter().all(|word| *word == 0))
}

/// The arrays of ranges: start and end of each.
fn arrays(memory: &impl Memory, words: &[u64]) -> Option<Vec<Vec<u64>>> {
    if !may_be_ranges(words) {
        return None;
    }
    let arrays = words.chunks(RANGES_WORDS).filter(|array| array[1] > 0);
    arrays.map(|array| memory.words(array[0], 2 * usize::try_from(array[1]).ok()?)).collect()
}

/// The ranges of all arrays, each once, sorted; `None` if an array is not in ascending order.
fn ranges_in(arrays: &[Vec<u64>]) -> Option<Vec<(u64, u64)>> {
    let mut all = HashSet::new();
    for bounds in arrays {
        let is_ascending = bounds.windows(2).all(|pair| pair[0] <= pair[1]);
        if !is_ascending || bounds.iter().step_by(2).any(|start| start % 8 != 0) {
            return None;
        }
        all.extend(
            bounds.as_chunks().0.iter().map(|[start, end]| (*start, *end)).filter(|(start, end)| start < end),
        );
    }
    let mut all: Vec<_> = all.into_iter().collect();
    all.sort_unstable();
    Some(all)
}

/// The name from the words of an `ErtsCodeInfo`.
fn function_name(memory: &impl Memory, atoms: &Atoms, words: [u64; NAME_WORDS]) -> Option<FunctionName> {
    let [module, function, arity] = words;
    Some(FunctionName {
        module: atoms.name(memory, module)?,
        function: atoms.name(memory, function)?,
        arity: u8::try_from(arity).ok()?,
    })
}

impl Layout {
    /// The layout with which most of some modules, spread over the ranges, can be read.
    fn find(memory: &impl Memory, ranges: &[(u64, u64)]) -> Option<Layout> {
        let step = (ranges.len() / CHECKED_MODULES).max(1);
        let some: Vec<_> = ranges.iter().step_by(step).take(CHECKED_MODULES).collect();
        let is_layout = |layout: &Layout| {
            let readable =
                some.iter().filter(|range| layout.module(memory, ***range, MAX_FUNCTIONS).is_some());
            2 * readable.count() >= some.len()
        };
        let layouts = (1..MAX_HEADER_WORDS)
            .flat_map(|functions| (0..MAX_INFO_WORDS).map(move |name| Layout { functions, name }));
        layouts.into_iter().find(is_layout)
    }

    /// The module with this range, and the addresses of its functions with the end of the last one.
    fn module(
        self,
        memory: &impl Memory,
        (start, end): (u64, u64),
        room: usize,
    ) -> Option<(ModuleCode, Vec<u64>)> {
        let functions = usize::try_from(memory.word(start)?).ok()?;
        if functions == 0 || functions > room {
            return None;
        }
        let mut header = memory.words(start, self.functions + functions + 1)?;
        let starts = header.split_off(self.functions);
        let first = *starts.first().filter(|first| (start..end).contains(first))?;
        let is_ascending = starts.windows(2).all(|pair| pair[0] <= pair[1]);
        let is_inside = is_ascending && starts.last() <= Some(&end);
        let words = memory.words(first.checked_add((self.name * WORD_BYTES) as u64)?, NAME_WORDS)?;
        let is_named = is_atom(words[0]) && is_atom(words[1]) && words[2] <= MAX_ARITY;
        (is_inside && is_named).then_some((ModuleCode { start, end, header, functions }, starts))
    }

    /// The words that name each function.
    fn names(self, memory: &impl Memory, starts: &[u64]) -> Vec<Option<[u64; NAME_WORDS]>> {
        let offset = (self.name * WORD_BYTES) as u64;
        let (Some(first), Some((_, starts))) = (starts.first(), starts.split_last()) else {
            return Vec::new();
        };
        let last = starts.last().map_or(*first, |last| *last);
        let length = (last - first).checked_add(offset + (NAME_WORDS * WORD_BYTES) as u64);
        // One read for the whole module; its code is between the names.
        let length = length.and_then(|length| usize::try_from(length).ok());
        let code = length.and_then(|length| memory.bytes(*first, length));
        let name = |start: &u64| {
            let at = usize::try_from((start - first).checked_add(offset)?).ok()?;
            let bytes = code.as_ref()?.get(at..at.checked_add(NAME_WORDS * WORD_BYTES)?)?;
            words_of(bytes).try_into().ok()
        };
        starts.iter().map(name).collect()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::atoms::tests::{put_atoms, term};
    use super::*;
    use crate::memory::Pieces;

    /// Words of the code header before `functions[]`, as in OTP 27.
    const HEADER_WORDS: u64 = 17;

    /// Writes a module with functions of 64 bytes: its name and theirs as indices of atoms; returns its range.
    pub(crate) fn put_module(
        memory: &mut Pieces,
        start: u64,
        module: u64,
        functions: &[(u64, u64)],
    ) -> (u64, u64) {
        let count = functions.len() as u64;
        let first = start + 8 * (HEADER_WORDS + count + 1);
        let mut header = vec![0; HEADER_WORDS as usize];
        header[0] = count;
        header.extend((0..=count).map(|index| first + 64 * index));
        for (function, arity) in functions {
            header.extend([0xaaaa, 0xbbbb, term(module), term(*function), *arity, 0xcc, 0xcc, 0xcc]);
        }
        memory.put(start, &header);
        (start, first + 64 * count)
    }

    /// Two modules: `lists` (foldl/3, map/2) and `shop` (cart/1).
    fn vm() -> (Pieces, Vec<StaticData>, [u64; 2]) {
        let mut memory = Pieces::default();
        let data = put_atoms(&mut memory, &[b"lists", b"foldl", b"map", b"shop", b"cart"], false);
        let (lists, shop) = (0x7000_0000, 0x7100_0000);
        let first = put_module(&mut memory, lists, 3, &[(4, 3), (5, 2)]);
        let second = put_module(&mut memory, shop, 6, &[(7, 1)]);
        memory.put(0x60_0000, &[first.0, first.1, second.0, second.1]);
        memory.put(0x61_0000, &[first.0, first.1]);
        let ranges = [0x60_0000, 2, 512, 0x60_0010, 0x61_0000, 1, 512, 0x61_0000, 0, 0, 0, 0];
        let words = [&[1, 2, 0x60_0000, 9, 9, 9][..], &ranges, &[0; 8]].concat();
        memory.put(0xa000, &words);
        (memory, vec![data, StaticData { address: 0xa000, words }], [lists, shop])
    }

    #[test]
    fn functions_are_found_by_address() {
        let (memory, data, [lists, shop]) = vm();
        let atoms = Atoms::find(&memory, &data).unwrap();
        let code = Code::find(&memory, &data, &atoms).unwrap();
        assert_eq!((code.modules(), code.functions(), code.unread), (2, 3, 0));
        let first = lists + 8 * (HEADER_WORDS + 3);
        let check = |address: u64, expect: Option<&str>| {
            let function = code.function_at(address);
            let name = function.and_then(|function| code.name(function.id)).map(ToString::to_string);
            assert_eq!(name.as_deref(), expect, "{address:x}");
        };
        check(first, Some("lists:foldl/3"));
        check(first + 63, Some("lists:foldl/3"));
        check(first + 64, Some("lists:map/2"));
        check(first + 128, None);
        check(first - 1, None);
        check(shop + 8 * (HEADER_WORDS + 2), Some("shop:cart/1"));
        check(0, None);
    }

    #[test]
    fn loaded_code_is_found_when_read_again() {
        let (mut memory, data, _) = vm();
        let atoms = Atoms::find(&memory, &data).unwrap();
        let mut code = Code::find(&memory, &data, &atoms).unwrap();
        assert!(code.is_current(&memory));
        let third = put_module(&mut memory, 0x7200_0000, 6, &[(4, 0)]);
        memory.put(0x61_0000, &[third.0, third.1]);
        assert!(!code.is_current(&memory));
        code.refresh(&memory, &atoms);
        assert!(code.is_current(&memory));
        assert_eq!((code.modules(), code.functions()), (3, 4));
        let function = code.function_at(third.1 - 1).unwrap();
        assert_eq!(code.name(function.id).unwrap().to_string(), "shop:foldl/0");
    }

    #[test]
    fn a_module_that_is_being_loaded_is_counted() {
        let (mut memory, data, [_, shop]) = vm();
        let atoms = Atoms::find(&memory, &data).unwrap();
        let mut code = Code::find(&memory, &data, &atoms).unwrap();
        memory.put(shop, &[0]);
        code.refresh(&memory, &atoms);
        assert_eq!((code.modules(), code.functions(), code.unread), (1, 2, 1));
    }

    #[test]
    fn forged_counts_are_not_followed() {
        let ranges = [0x60_0000, u64::MAX, u64::MAX, 0x60_0000, 0, 0, 0, 0, 0, 0, 0, 0];
        assert!(!may_be_ranges(&ranges));
        let (mut memory, data, [lists, _]) = vm();
        memory.put(lists, &[u64::MAX]);
        let atoms = Atoms::find(&memory, &data).unwrap();
        assert!(Code::find(&memory, &data, &atoms).is_some_and(|code| code.functions() == 1));
    }
}
