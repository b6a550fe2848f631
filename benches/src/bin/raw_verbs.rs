//! The time of one signalled work request, posted and polled for by hand: the lower bound for any library on verbs.
//!
//! `raw_verbs ADDRESS COUNT` connects an RDMA device to itself. It prints one JSON object, in microseconds: the medians of 8-byte
//! READ, WRITE, CAS and FAA, which take turns, so that disturbances of the machine hit them alike; the mean of `COUNT` READs in
//! sequence; and the medians of a READ of [`LEAF_BYTES`] bytes, and of a sixteenth of sixteen such READs with one doorbell.
//!
//! `raw_verbs ADDRESS COUNT --counted` measures nothing: it executes `COUNT` of each one by one, and then as many of each by sixteens, with one
//! doorbell for sixteen. Callgrind counts between [`count_begins`] and [`count_ends`]; `counted_verbs` does the same with the library.

use std::ffi::CString;
use std::hint::black_box;
use std::io;
use std::mem::{MaybeUninit, zeroed};
use std::process::ExitCode;
use std::ptr::null_mut;
use std::time::Instant;

use rdma_sys as sys;
use sys::{ibv_access_flags as access, ibv_wr_opcode as opcode};

const PORT: &str = "7471";
const RAI_PASSIVE: i32 = 1;
/// For `rdma_set_option`: the time until a packet is sent again. With this value it never is; see the fabric.
const NO_RESENDING: u8 = 24;

/// The most work requests of a doorbell: as many as `counted_verbs` has tasks.
const TASKS: usize = 16;

/// The bytes of a leaf of an ordered map of words.
const LEAF_BYTES: usize = 992;

/// A count begins after this call.
#[inline(never)]
fn count_begins() {
    black_box("begins");
}

/// A count ends before this call.
#[inline(never)]
fn count_ends() {
    black_box("ends");
}

/// The memory at one end: what is operated on, or what receives results.
#[repr(C, align(64))]
struct Memory([u8; LEAF_BYTES]);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let (address, count, is_counted) = match arguments.as_slice() {
        [_, address, count] => (address, count, false),
        [_, address, count, option] if option == "--counted" => (address, count, true),
        _ => {
            eprintln!("usage: raw_verbs ADDRESS COUNT [--counted]");
            return ExitCode::from(2);
        }
    };
    let Ok(count) = count.parse::<usize>() else {
        eprintln!("error: COUNT is {count}, which is not a number");
        return ExitCode::from(2);
    };
    match run(address, count.max(1), is_counted) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

fn check(result: i32) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[allow(clippy::too_many_lines, clippy::cast_precision_loss)] // one sequence of calls, as in a tutorial
fn run(address: &str, count: usize, is_counted: bool) -> io::Result<()> {
    // SAFETY:
    // - Objects of the library: each dereferenced pointer was returned by a call whose success `check` or the test for null has verified. None is
    //   ever destroyed or freed (the program ends soon), so all stay valid, on the accepting thread too. The two threads share only the
    //   listener's address: this thread does not use the listener after it has started the other, and takes the accepted connection when it
    //   has joined that thread.
    // - Structures that the library reads are locals that outlive the call; it keeps none. They consist of integers, raw pointers and unions of
    //   these, for all of which zero is valid. Only `status` of a completion is read, which each completion has. There are `TASKS` requests, and
    //   no call of `operate` uses more.
    // - Memory that the device writes: both ends are leaked, so they are never freed. They are as large as the registered regions, and no call
    //   of `operate` has more bytes, which are `LEAF_BYTES` at most. No
    //   reference to them is used after it was turned into the address that the device is given.
    unsafe {
        let mut attributes: sys::ibv_qp_init_attr = zeroed();
        attributes.cap = sys::ibv_qp_cap {
            max_send_wr: TASKS as u32,
            max_recv_wr: 1,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
        };
        attributes.qp_type = sys::ibv_qp_type::IBV_QPT_RC;
        let endpoint = |flags: i32| -> io::Result<*mut sys::rdma_cm_id> {
            let (host, port) = (CString::new(address)?, CString::new(PORT)?);
            let mut hints: sys::rdma_addrinfo = zeroed();
            hints.ai_flags = flags;
            hints.ai_port_space = sys::rdma_port_space::RDMA_PS_TCP.cast_signed();
            let mut found = null_mut();
            check(sys::rdma_getaddrinfo(
                host.as_ptr().cast_mut(),
                port.as_ptr().cast_mut(),
                &raw const hints,
                &raw mut found,
            ))?;
            let mut id = null_mut();
            let mut attributes = std::ptr::read(&raw const attributes);
            check(sys::rdma_create_ep(&raw mut id, found, null_mut(), &raw mut attributes))?;
            Ok(id)
        };
        let listener = endpoint(RAI_PASSIVE)?;
        check(sys::rdma_listen(listener, 1))?;
        let listener = listener.expose_provenance();
        let accepting = std::thread::spawn(move || -> io::Result<usize> {
            let mut accepted = null_mut();
            check(sys::rdma_get_request(std::ptr::with_exposed_provenance_mut(listener), &raw mut accepted))?;
            let mut parameters: sys::rdma_conn_param = zeroed();
            parameters.responder_resources = 16;
            check(sys::rdma_accept(accepted, &raw mut parameters))?;
            Ok(accepted.expose_provenance())
        });
        let id = endpoint(0)?;
        let mut exponent = NO_RESENDING;
        sys::rdma_set_option(id, 0, 3, (&raw mut exponent).cast(), 1);
        let mut parameters: sys::rdma_conn_param = zeroed();
        parameters.initiator_depth = 16;
        parameters.retry_count = 7;
        check(sys::rdma_connect(id, &raw mut parameters))?;
        let accepted = accepting.join().expect("it does not panic")?;
        let accepted: *mut sys::rdma_cm_id = std::ptr::with_exposed_provenance_mut(accepted);
        let (far, near) =
            (Box::leak(Box::new(Memory([0; LEAF_BYTES]))), Box::leak(Box::new(Memory([0; LEAF_BYTES]))));
        let rights = |rights: sys::ibv_access_flags| rights.0.cast_signed();
        let all = access::IBV_ACCESS_LOCAL_WRITE
            | access::IBV_ACCESS_REMOTE_READ
            | access::IBV_ACCESS_REMOTE_WRITE
            | access::IBV_ACCESS_REMOTE_ATOMIC;
        let far_mr =
            sys::ibv_reg_mr((*accepted).pd, (&raw mut *far).cast(), size_of::<Memory>(), rights(all));
        let near_mr = sys::ibv_reg_mr(
            (*id).pd,
            (&raw mut *near).cast(),
            size_of::<Memory>(),
            rights(access::IBV_ACCESS_LOCAL_WRITE),
        );
        if far_mr.is_null() || near_mr.is_null() {
            return Err(io::Error::last_os_error());
        }
        let mut element =
            sys::ibv_sge { addr: (&raw const *near).addr() as u64, length: 8, lkey: (*near_mr).lkey };
        let (remote_addr, rkey) = ((&raw const *far).addr() as u64, (*far_mr).rkey);
        let atomic = sys::atomic_t { remote_addr, compare_add: 1, swap: 1, rkey };
        let mut medians = Vec::new();
        let kinds = [
            ("read", opcode::IBV_WR_RDMA_READ, false),
            ("write", opcode::IBV_WR_RDMA_WRITE, false),
            ("cas", opcode::IBV_WR_ATOMIC_CMP_AND_SWP, true),
            ("faa", opcode::IBV_WR_ATOMIC_FETCH_AND_ADD, true),
        ];
        let mut requests: [sys::ibv_send_wr; TASKS] = zeroed();
        let mut operate = |opcode, is_atomic, bytes: usize, many: usize| -> io::Result<()> {
            element.length = bytes as u32;
            let first = requests.as_mut_ptr();
            for index in 0..many {
                let request = first.add(index);
                (*request).next = if index + 1 < many { first.add(index + 1) } else { null_mut() };
                (*request).sg_list = &raw mut element;
                (*request).num_sge = 1;
                (*request).opcode = opcode;
                (*request).send_flags = sys::ibv_send_flags::IBV_SEND_SIGNALED.0;
                if is_atomic {
                    (*request).wr.atomic = atomic;
                } else {
                    (*request).wr.rdma = sys::rdma_t { remote_addr, rkey };
                }
            }
            let mut refused = null_mut();
            check(sys::ibv_post_send((*id).qp, first, &raw mut refused))?;
            let mut left = many;
            while left > 0 {
                let mut completion = MaybeUninit::<sys::ibv_wc>::uninit();
                while sys::ibv_poll_cq((*id).send_cq, 1, completion.as_mut_ptr()) == 0 {
                    std::hint::spin_loop();
                }
                if (*completion.as_ptr()).status != sys::ibv_wc_status::IBV_WC_SUCCESS {
                    return Err(io::Error::other("a work request failed"));
                }
                left -= 1;
            }
            Ok(())
        };
        if is_counted {
            for many in [1, TASKS] {
                for (_, opcode, is_atomic) in kinds {
                    operate(opcode, is_atomic, 8, many)?;
                    count_begins();
                    for _ in 0..count / many {
                        operate(opcode, is_atomic, 8, many)?;
                    }
                    count_ends();
                }
            }
            return Ok(());
        }
        let mut times = kinds.map(|_| Vec::with_capacity(count));
        for _ in 0..count {
            for ((_, opcode, is_atomic), times) in kinds.iter().zip(&mut times) {
                let began = Instant::now();
                operate(*opcode, *is_atomic, 8, 1)?;
                times.push(began.elapsed());
            }
        }
        let began = Instant::now();
        for _ in 0..count {
            operate(opcode::IBV_WR_RDMA_READ, false, 8, 1)?;
        }
        medians.push(format!("\"read_mean\": {}", began.elapsed().as_secs_f64() * 1e6 / count as f64));
        for ((name, ..), times) in kinds.iter().zip(&mut times) {
            times.sort_unstable();
            medians.push(format!("\"{name}\": {}", times[times.len() / 2].as_secs_f64() * 1e6));
        }
        for (name, many) in [("leaf", 1), ("leaf_of_16", TASKS)] {
            let mut times = Vec::with_capacity(count);
            for _ in 0..count {
                let began = Instant::now();
                operate(opcode::IBV_WR_RDMA_READ, false, LEAF_BYTES, many)?;
                times.push(began.elapsed());
            }
            times.sort_unstable();
            medians.push(format!("\"{name}\": {}", times[count / 2].as_secs_f64() * 1e6 / many as f64));
        }
        println!("{{{}}}", medians.join(", "));
        Ok(())
    }
}
