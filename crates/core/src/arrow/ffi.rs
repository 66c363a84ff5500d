//! Hands a batch out through the Arrow C data interface (arrow.apache.org, "C data interface").
//!
//! Every exported array holds a share of the batch; the last release frees it. Releasing calls
//! nothing but the allocator, so that any thread of any program may do it.

use std::ffi::{c_char, c_void};
use std::ptr;
use std::sync::Arc;

use crate::arrow::{Batch, Bytes, Column, Field, Kind};

const NULLABLE: i64 = 2;

/// The C struct that describes a type.
#[repr(C)]
#[derive(Debug)]
#[allow(missing_docs)] // The interface's own names.
pub struct ArrowSchema {
    pub format: *const c_char,
    pub name: *const c_char,
    pub metadata: *const c_char,
    pub flags: i64,
    pub n_children: i64,
    pub children: *mut *mut ArrowSchema,
    pub dictionary: *mut ArrowSchema,
    pub release: Option<unsafe extern "C" fn(*mut ArrowSchema)>,
    pub private_data: *mut c_void,
}

/// The C struct that holds data.
#[repr(C)]
#[derive(Debug)]
#[allow(missing_docs)] // The interface's own names.
pub struct ArrowArray {
    pub length: i64,
    pub null_count: i64,
    pub offset: i64,
    pub n_buffers: i64,
    pub n_children: i64,
    pub buffers: *mut *const c_void,
    pub children: *mut *mut ArrowArray,
    pub dictionary: *mut ArrowArray,
    pub release: Option<unsafe extern "C" fn(*mut ArrowArray)>,
    pub private_data: *mut c_void,
}

// SAFETY: the pointers lead to memory that only this struct's owner reaches, which is never written
// after export, and whose release may run on any thread.
unsafe impl Send for ArrowSchema {}
// SAFETY: as above; the batch itself is shared and immutable.
unsafe impl Send for ArrowArray {}

impl Drop for ArrowSchema {
    fn drop(&mut self) {
        if let Some(release) = self.release {
            // SAFETY: a release that is still set has not run; a struct that was moved away has
            // none any more, as the interface demands.
            unsafe { release(self) }
        }
    }
}

impl Drop for ArrowArray {
    fn drop(&mut self) {
        if let Some(release) = self.release {
            // SAFETY: as for the schema.
            unsafe { release(self) }
        }
    }
}

/// What an exported struct owns: its children, and for an array the buffer list and its share.
struct Owned<T> {
    children: Vec<*mut T>,
    buffers: Vec<*const c_void>,
    name: Vec<u8>,
    _batch: Option<Arc<Batch>>,
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        for child in self.children.drain(..) {
            // SAFETY: each child was made by `Box::into_raw` in this file and is freed only here;
            // dropping it releases what it still owns.
            drop(unsafe { Box::from_raw(child) });
        }
    }
}

unsafe extern "C" fn release_schema(schema: *mut ArrowSchema) {
    // SAFETY: called once with a struct made by `schema_of`, whose private data is this box.
    unsafe {
        drop(Box::from_raw(
            (*schema).private_data.cast::<Owned<ArrowSchema>>(),
        ));
        (*schema).release = None;
    }
}

unsafe extern "C" fn release_array(array: *mut ArrowArray) {
    // SAFETY: called once with a struct made by `array_of`, whose private data is this box.
    unsafe {
        drop(Box::from_raw(
            (*array).private_data.cast::<Owned<ArrowArray>>(),
        ));
        (*array).release = None;
    }
}

fn format_of(kind: Kind) -> &'static std::ffi::CStr {
    match kind {
        Kind::Utf8 => c"u",
        Kind::Binary => c"z",
        Kind::Int32 => c"i",
        Kind::Int64 => c"l",
        Kind::Timestamp => c"tsu:UTC",
        Kind::Map => c"+m",
    }
}

fn schema_of(
    format: &'static std::ffi::CStr,
    name: &str,
    flags: i64,
    children: Vec<ArrowSchema>,
) -> ArrowSchema {
    let mut owned = Box::new(Owned {
        children: children
            .into_iter()
            .map(|child| Box::into_raw(Box::new(child)))
            .collect(),
        buffers: Vec::new(),
        name: name.bytes().chain([0]).collect(),
        _batch: None,
    });
    ArrowSchema {
        format: format.as_ptr(),
        name: owned.name.as_ptr().cast(),
        metadata: ptr::null(),
        flags,
        n_children: count(owned.children.len()),
        children: owned.children.as_mut_ptr(),
        dictionary: ptr::null_mut(),
        release: Some(release_schema),
        private_data: Box::into_raw(owned).cast(),
    }
}

fn field_schema(field: Field) -> ArrowSchema {
    let children = match field.kind() {
        Kind::Map => {
            let key = schema_of(c"u", "key", 0, Vec::new());
            let value = schema_of(c"u", "value", NULLABLE, Vec::new());
            vec![schema_of(c"+s", "entries", 0, vec![key, value])]
        }
        _ => Vec::new(),
    };
    schema_of(format_of(field.kind()), field.name(), NULLABLE, children)
}

/// The type of a batch: a struct of its columns.
pub fn export_schema(batch: &Batch) -> ArrowSchema {
    let columns = batch
        .columns
        .iter()
        .map(|(field, _)| field_schema(*field))
        .collect();
    schema_of(c"+s", "", 0, columns)
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Buffers must not be null pointers; an empty vector's pointer dangles but is never read.
fn place<T>(data: &[T]) -> *const c_void {
    data.as_ptr().cast()
}

fn array_of(
    batch: &Arc<Batch>,
    length: usize,
    nulls: usize,
    buffers: Vec<*const c_void>,
    children: Vec<ArrowArray>,
) -> ArrowArray {
    let mut owned = Box::new(Owned {
        children: children
            .into_iter()
            .map(|child| Box::into_raw(Box::new(child)))
            .collect(),
        buffers,
        name: Vec::new(),
        _batch: Some(Arc::clone(batch)),
    });
    ArrowArray {
        length: count(length),
        null_count: count(nulls),
        offset: 0,
        n_buffers: count(owned.buffers.len()),
        n_children: count(owned.children.len()),
        buffers: owned.buffers.as_mut_ptr(),
        children: owned.children.as_mut_ptr(),
        dictionary: ptr::null_mut(),
        release: Some(release_array),
        private_data: Box::into_raw(owned).cast(),
    }
}

fn bytes_array(batch: &Arc<Batch>, bytes: &Bytes) -> ArrowArray {
    let validity = if bytes.nulls == 0 {
        ptr::null()
    } else {
        place(&bytes.validity)
    };
    let buffers = vec![validity, place(&bytes.offsets), place(&bytes.data)];
    array_of(
        batch,
        bytes.offsets.len() - 1,
        bytes.nulls,
        buffers,
        Vec::new(),
    )
}

fn column_array(batch: &Arc<Batch>, column: &Column) -> ArrowArray {
    let none = ptr::null();
    match column {
        Column::Bytes(bytes) => bytes_array(batch, bytes),
        Column::Int32(values) => array_of(
            batch,
            values.len(),
            0,
            vec![none, place(values)],
            Vec::new(),
        ),
        Column::Int64(values) => array_of(
            batch,
            values.len(),
            0,
            vec![none, place(values)],
            Vec::new(),
        ),
        Column::Map {
            offsets,
            keys,
            values,
        } => {
            let pairs = vec![bytes_array(batch, keys), bytes_array(batch, values)];
            let entries = array_of(batch, keys.offsets.len() - 1, 0, vec![none], pairs);
            array_of(
                batch,
                offsets.len() - 1,
                0,
                vec![none, place(offsets)],
                vec![entries],
            )
        }
    }
}

/// The data of a batch: a struct of its columns, each holding a share of the batch.
pub fn export_array(batch: &Arc<Batch>) -> ArrowArray {
    let columns = batch
        .columns
        .iter()
        .map(|(_, column)| column_array(batch, column))
        .collect();
    array_of(batch, batch.rows, 0, vec![ptr::null()], columns)
}
