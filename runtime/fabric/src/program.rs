//! Names of functions that other processes of the same program understand.
//!
//! A function is named by its position in the program's image, since each process has the image at another address. A position is a bare number, and a wrong
//! one must not be called. So a name has two more parts:
//!
//! - the position of a [`Signature`]: a static of the program that knows the type of the function. It is recognised by a mark of 128 bits in the image's
//!   data, where no far memory is, and no value of a program;
//! - a tag, which binds both positions to each other and to the build. [`Nameable::name`] alone makes tags, of a function and a signature of its type.
//!
//! [`resolve`] refuses a name of another build, a position outside of the image, and a tag that does not fit. So a name that was overwritten in far memory
//! passes with a probability of 2^-64. It is no protection against a program that computes tags on purpose; nor is anything else that such a program, with the
//! cluster's secret, can not do otherwise.
//!
//! Functions of shared libraries have no position in the image, and get no name.
//!
//! # Identity of a build
//!
//! The linker's build identity, if the image has one (`NT_GNU_BUILD_ID`); otherwise a hash of the executable file. Two different builds have different
//! positions, so their names must not be mixed. On systems other than Linux, where processes do not share clusters, the identity is random, and positions are addresses.

use std::any::TypeId;
use std::ops::Range;
use std::sync::OnceLock;

/// The mark of signatures.
const MARK: [u64; 2] = [0x6661_7266_6965_6c64, 0xb5a1_90f7_3c62_e8d9];

/// A static of the program that stands for a type of function, with a payload: what calls such a function.
#[repr(C)]
pub struct Signature<P: Copy + 'static> {
    mark: [u64; 2],
    payload_type: fn() -> TypeId,
    function_type: fn() -> TypeId,
    payload: P,
}

/// The name of a function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FunctionName {
    /// The position of its signature.
    pub signature: u64,
    /// Its own position.
    pub function: u64,
    /// Binds both.
    pub tag: u64,
}

/// A function that was named.
#[derive(Clone, Copy)]
pub struct NamedFunction {
    address: usize,
    function_type: TypeId,
}

/// The image of this program in memory.
struct Image {
    build: [u64; 2],
    base: usize,
    code: Vec<Range<usize>>,
    /// What is constant once the program is loaded.
    data: Vec<Range<usize>>,
}

impl<P: Copy + 'static> Signature<P> {
    /// Makes the signature of functions of the type `F`, which is `fn(…) -> …`.
    pub const fn of<F: Copy + 'static>(payload: P) -> Self {
        const { assert!(size_of::<F>() == size_of::<usize>(), "a function pointer") };
        Self { mark: MARK, payload_type: TypeId::of::<P>, function_type: TypeId::of::<F>, payload }
    }

    /// Returns the payload.
    pub fn payload(&self) -> P {
        self.payload
    }
}

impl NamedFunction {
    /// Returns the function, if it has this type.
    pub fn get<F: Copy + 'static>(self) -> Option<F> {
        if self.function_type != TypeId::of::<F>() || size_of::<F>() != size_of::<usize>() {
            return None;
        }
        // SAFETY: `resolve` made this value of a name whose tag binds `address` to a signature of `F`. `Nameable::name` made that tag, in this build, of a value of
        // type `F` at the same position of the image's code. So the address is that value, and `F` is as large as a `usize`.
        Some(unsafe { std::mem::transmute_copy::<usize, F>(&self.address) })
    }
}

/// Returns the identity of this build.
pub fn build() -> [u64; 2] {
    image().build
}

/// A function, with a signature of its type, that can be named.
#[derive(Clone, Copy)]
pub struct Nameable<P: Copy + 'static> {
    signature: &'static Signature<P>,
    address: usize,
}

impl<P: Copy + 'static> Nameable<P> {
    /// `None` if the signature is of another type.
    #[inline]
    pub fn new<F: Copy + 'static>(signature: &'static Signature<P>, function: F) -> Option<Self> {
        if (signature.function_type)() != TypeId::of::<F>() {
            return None;
        }
        // SAFETY: `Signature::of` has checked that `F` is as large as a `usize`. It is a pointer to a function, or else its bits are used as a number only if they
        // lie in the image's code; a value without initialised bytes has no `Signature`, since `F` is `Copy` and of one word.
        let address = unsafe { std::mem::transmute_copy::<F, usize>(&function) };
        Some(Self { signature, address })
    }

    /// Returns what distinguishes it in this process from others.
    #[inline]
    pub fn key(self) -> [usize; 2] {
        [std::ptr::from_ref(self.signature).addr(), self.address]
    }

    /// Names the function. `None` if it, or its signature, is not in the image of the main program.
    pub fn name(self) -> Option<FunctionName> {
        let image = image();
        let function = image.position(self.address, 1, &image.code)?;
        let at = std::ptr::from_ref(self.signature).addr();
        let signature = image.position(at, size_of::<Signature<P>>(), &image.data)?;
        Some(FunctionName { signature, function, tag: image.tag(signature, function) })
    }
}

/// Finds the function of a name, and the payload of its signature. `None` if this build has no such function.
pub fn resolve<P: Copy + 'static>(name: FunctionName) -> Option<(P, NamedFunction)> {
    let image = image();
    if name.tag != image.tag(name.signature, name.function) {
        return None;
    }
    let at = image.address(name.signature, size_of::<Signature<()>>(), &image.data)?;
    let address = image.address(name.function, 1, &image.code)?;
    if !at.is_multiple_of(align_of::<Signature<P>>()) {
        return None;
    }
    // SAFETY: the bytes are in a part of the image that is mapped, and not written, while the program runs, and `at` is aligned. The mark and the two
    // functions have a fixed place at the beginning, whatever the payload. The mark is compared first, as integers; only a signature has it.
    let head = unsafe { &*std::ptr::with_exposed_provenance::<Signature<()>>(at) };
    if head.mark != MARK || (head.payload_type)() != TypeId::of::<P>() {
        return None;
    }
    image.address(name.signature, size_of::<Signature<P>>(), &image.data)?;
    // SAFETY: it is a signature, and its payload has the type `P`.
    let signature = unsafe { &*std::ptr::with_exposed_provenance::<Signature<P>>(at) };
    Some((signature.payload, NamedFunction { address, function_type: (signature.function_type)() }))
}

fn image() -> &'static Image {
    static IMAGE: OnceLock<Image> = OnceLock::new();
    IMAGE.get_or_init(Image::find)
}

impl Image {
    fn tag(&self, signature: u64, function: u64) -> u64 {
        // Each step is a bijection of the sum, so names of one build differ from each other's tags at random, and those of other builds too.
        self.build.iter().chain(&[signature, function]).fold(0x9e37_79b9_7f4a_7c15, |sum: u64, word| {
            let mixed = (sum ^ word).wrapping_mul(0xff51_afd7_ed55_8ccd);
            (mixed ^ mixed >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53).rotate_left(29)
        })
    }

    /// Returns the position of an address in one of these parts.
    fn position(&self, address: usize, bytes: usize, parts: &[Range<usize>]) -> Option<u64> {
        contains(parts, address, bytes).then(|| address.wrapping_sub(self.base) as u64)
    }

    /// Returns the address of a position in one of these parts.
    fn address(&self, position: u64, bytes: usize, parts: &[Range<usize>]) -> Option<usize> {
        let address = self.base.wrapping_add(usize::try_from(position).ok()?);
        contains(parts, address, bytes).then_some(address)
    }
}

fn contains(parts: &[Range<usize>], address: usize, bytes: usize) -> bool {
    let end = address.checked_add(bytes);
    end.is_some_and(|end| parts.iter().any(|part| part.start <= address && end <= part.end))
}

#[cfg(not(target_os = "linux"))]
impl Image {
    /// Without the image's parts, every address is one.
    fn find() -> Self {
        let mut build = [0; 2];
        // Without entropy all builds are equal, as they are: there is one process.
        let _ = getrandom::fill(bytemuck::bytes_of_mut(&mut build));
        let all = || vec![1..usize::MAX];
        Self { build, base: 0, code: all(), data: all() }
    }
}

#[cfg(target_os = "linux")]
impl Image {
    fn find() -> Self {
        let mut image = Self { build: [0; 2], base: 0, code: Vec::new(), data: Vec::new() };
        // SAFETY: `add_parts` has the type that the function calls, and `image` outlives the call, which passes it to `add_parts` alone.
        unsafe { libc::dl_iterate_phdr(Some(add_parts), (&raw mut image).cast()) };
        if image.build == [0; 2] {
            image.build = hash_of_executable();
        }
        image
    }
}

/// Adds the parts of the main program, which is the first object of all.
#[cfg(target_os = "linux")]
unsafe extern "C" fn add_parts(
    info: *mut libc::dl_phdr_info,
    _: libc::size_t,
    image: *mut libc::c_void,
) -> libc::c_int {
    // SAFETY: `dl_iterate_phdr` passes a description that is valid during the call, and the pointer that `find` gave it.
    let (info, image) = unsafe { (&*info, &mut *image.cast::<Image>()) };
    image.base = info.dlpi_addr as usize;
    // SAFETY: the description says that there are so many headers.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    for header in headers {
        let start = image.base.wrapping_add(header.p_vaddr as usize);
        let part = start..start.saturating_add(header.p_memsz as usize);
        let is = |flag| header.p_flags & flag != 0;
        if header.p_type == libc::PT_LOAD && is(libc::PF_X) {
            image.code.push(part);
        } else if header.p_type == libc::PT_GNU_RELRO
            || (header.p_type == libc::PT_LOAD && is(libc::PF_R) && !is(libc::PF_W))
        {
            image.data.push(part);
        } else if header.p_type == libc::PT_NOTE {
            // SAFETY: notes are in a loaded, readable part of the image.
            let notes = unsafe {
                std::slice::from_raw_parts(std::ptr::with_exposed_provenance::<u8>(part.start), part.len())
            };
            if let Some(build) = build_in_notes(notes) {
                image.build = build;
            }
        }
    }
    // No other object.
    1
}

/// Returns the first 128 bits of the build identity in the notes of an image.
#[cfg(any(target_os = "linux", test))]
fn build_in_notes(mut notes: &[u8]) -> Option<[u64; 2]> {
    const BUILD_ID: u32 = 3;
    loop {
        let (head, rest) = notes.split_first_chunk::<12>()?;
        let [name, description, kind]: [u32; 3] = bytemuck::pod_read_unaligned(head);
        let name_bytes = (name as usize).next_multiple_of(4);
        let body = rest.get(name_bytes..)?;
        let found = body.get(..description as usize)?;
        if kind == BUILD_ID && rest.starts_with(b"GNU\0") && found.len() >= 16 {
            return Some(bytemuck::pod_read_unaligned(&found[..16]));
        }
        notes = body.get((description as usize).next_multiple_of(4)..)?;
    }
}

/// Returns a hash of the executable file.
#[cfg(target_os = "linux")]
fn hash_of_executable() -> [u64; 2] {
    use sha2::Digest as _;
    let mut hasher = sha2::Sha256::new();
    // A program that can not read its own file has names that no other process understands.
    match std::fs::read("/proc/self/exe") {
        Ok(bytes) => hasher.update(bytes),
        Err(_) => hasher.update(std::process::id().to_ne_bytes()),
    }
    bytemuck::pod_read_unaligned(&hasher.finalize()[..16])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name<F: Copy + 'static>(signature: &'static Signature<u8>, function: F) -> Option<FunctionName> {
        Nameable::new(signature, function)?.name()
    }

    type Sum = fn(u64, u64) -> u64;

    static OF_SUM: Signature<u8> = Signature::of::<Sum>(7);
    static OF_OTHER: Signature<u8> = Signature::of::<fn(u64) -> u64>(8);

    fn sum(a: u64, b: u64) -> u64 {
        a + b
    }

    #[test]
    fn a_name_leads_to_the_function() {
        let name = name(&OF_SUM, sum as Sum).unwrap();
        let (payload, function) = resolve::<u8>(name).unwrap();
        assert_eq!(payload, 7);
        assert_eq!(function.get::<Sum>().unwrap()(2, 3), 5);
        assert!(function.get::<fn(u64) -> u64>().is_none());
        assert!(resolve::<u16>(name).is_none(), "another payload");
    }

    #[test]
    fn every_wrong_name_is_refused() {
        let right = name(&OF_SUM, sum as Sum).unwrap();
        for bit in 0..64 {
            for part in 0..3 {
                let mut wrong = right;
                match part {
                    0 => wrong.signature ^= 1 << bit,
                    1 => wrong.function ^= 1 << bit,
                    _ => wrong.tag ^= 1 << bit,
                }
                assert!(resolve::<u8>(wrong).is_none());
                // Also with a tag that fits: outside of the image, or no signature.
                if part == 0 {
                    wrong.tag = image().tag(wrong.signature, wrong.function);
                    assert!(resolve::<u8>(wrong).is_none(), "bit {bit}");
                }
            }
        }
        let other = name(&OF_OTHER, (|n| n) as fn(u64) -> u64).unwrap();
        assert!(resolve::<u8>(FunctionName { function: right.function, ..other }).is_none());
    }

    #[test]
    fn a_function_of_another_type_has_no_name_under_a_signature() {
        assert!(name(&OF_OTHER, sum as Sum).is_none());
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn functions_and_signatures_outside_of_the_image_have_no_name() {
        type Libc = unsafe extern "C" fn(libc::c_int) -> libc::c_int;
        static OF_LIBC: Signature<u8> = Signature::of::<Libc>(0);
        let on_heap: &'static Signature<u8> = Box::leak(Box::new(Signature::of::<Sum>(9)));
        assert!(name(on_heap, sum as Sum).is_none());
        // SAFETY: it is not called.
        let in_library = unsafe {
            std::mem::transmute::<*mut libc::c_void, Libc>(libc::dlsym(libc::RTLD_DEFAULT, c"abs".as_ptr()))
        };
        assert!(name(&OF_LIBC, in_library).is_none());
    }

    #[test]
    fn the_build_identity_is_found_among_notes() {
        let note = |kind: u32, name: &[u8; 4], description: &[u8]| {
            let mut note = Vec::new();
            for number in [4, description.len() as u32, kind] {
                note.extend(number.to_ne_bytes());
            }
            note.extend(name);
            note.extend(description);
            note.resize(note.len().next_multiple_of(4), 0);
            note
        };
        let id: Vec<u8> = (0..20).collect();
        let notes = [note(1, b"GNU\0", b"abcde"), note(3, b"ABC\0", &id), note(3, b"GNU\0", &id)].concat();
        assert_eq!(build_in_notes(&notes), Some(bytemuck::pod_read_unaligned(&id[..16])));
        assert_eq!(build_in_notes(&notes[..notes.len() - 8]), None);
        assert_eq!(build_in_notes(&[]), None);
        assert_ne!(build(), [0; 2]);
    }
}
