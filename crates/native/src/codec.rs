//! Frames and records for Python.

// PyO3 hands arguments over by value.
#![allow(clippy::needless_pass_by_value)]

use std::borrow::Cow;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::{pyfunction, Bound, PyAny, PyErr, PyResult, Python};
use pyo3::types::{
    PyAnyMethods, PyBytes, PyDict, PyDictMethods, PyList, PyListMethods, PyMapping,
    PyMappingMethods, PyString, PyStringMethods, PyTuple,
};
use pyo3::IntoPyObjectExt;
use roquet_core::codec::command::{self, Encoding, Header};
use roquet_core::codec::error::CodecError;
use roquet_core::codec::frame::{self, Frame};
use roquet_core::codec::projection::{self, Projection};
use roquet_core::codec::properties;
use roquet_core::codec::record::{self, RecordView, Why};
use roquet_core::commit_log::scan;

use crate::buffer::Lent;

/// Returns the zlib CRC-32 of `data` without its top bit.
#[pyfunction]
pub(crate) fn crc32(data: Lent<'_>) -> u32 {
    roquet_core::codec::crc::masked(data.as_slice())
}

fn bad(error: &CodecError) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// Leave out of stored records what a projection does not want.
#[pyfunction]
pub(crate) fn project_records<'py>(
    py: Python<'py>,
    records: Lent<'py>,
    text: &str,
) -> PyResult<Bound<'py, PyBytes>> {
    let Some(wanted) = Projection::parse(text) else {
        return Err(PyValueError::new_err(format!(
            "{} of {} bytes is not headers, properties or properties:NAME,...",
            projection::FIELD,
            text.len()
        )));
    };
    let mut out = Vec::new();
    projection::write(records.as_slice(), &wanted, &mut out)
        .map_err(|(at, why)| bad_record("", at, why))?;
    Ok(PyBytes::new(py, &out))
}

/// Cut and decode the whole frames at the start of `data`.
#[pyfunction]
#[pyo3(signature = (data, frame_size_max = 16_777_216))]
pub(crate) fn decode_frames<'py>(
    py: Python<'py>,
    data: Lent<'py>,
    frame_size_max: usize,
) -> PyResult<(Bound<'py, PyList>, usize)> {
    let bytes = data.as_slice();
    let list = PyList::empty(py);
    let mut used = 0;
    loop {
        let rest = bytes.get(used..).unwrap_or_default();
        let next = frame::cut(rest, frame_size_max)
            .and_then(|frame| frame.map(|f| f.decode_header().map(|h| (f, h))).transpose());
        match next {
            Ok(Some((frame, header))) => {
                list.append(frame_tuple(py, &frame, &header)?)?;
                used += frame.size;
            }
            Err(error) if list.is_empty() => return Err(bad(&error)),
            // The whole frames before it are good: the caller meets the error when it goes on.
            Ok(None) | Err(_) => break,
        }
    }
    Ok((list, used))
}

/// What Python gets of a frame; also used by the ingest for frames it leaves to Python.
pub(crate) fn frame_tuple<'py>(
    py: Python<'py>,
    frame: &Frame<'_>,
    header: &Header<'_>,
) -> PyResult<Bound<'py, PyTuple>> {
    let ext = match &header.ext {
        None => py.None().into_bound(py),
        Some(ext) => {
            let dict = PyDict::new(py);
            for (name, value) in ext {
                dict.set_item(PyString::new(py, name), PyString::new(py, value))?;
            }
            dict.into_any()
        }
    };
    let fields: [Bound<'py, PyAny>; 9] = [
        frame.encoding.code().into_bound_py_any(py)?,
        header.code.into_bound_py_any(py)?,
        header.flag.into_bound_py_any(py)?,
        PyString::intern(py, command::language_name(header.language)).into_any(),
        header.version.into_bound_py_any(py)?,
        header.opaque.into_bound_py_any(py)?,
        header.remark.as_deref().into_bound_py_any(py)?,
        ext,
        PyBytes::new(py, frame.body).into_any(),
    ];
    PyTuple::new(py, fields)
}

/// Encode one whole frame, length included; without its body when `body_apart`.
#[pyfunction]
#[pyo3(signature = (encoding, code, flag, language, version, opaque, remark, ext, body, body_apart = false))]
#[allow(clippy::too_many_arguments)] // The fields of a header.
pub(crate) fn encode_command<'py>(
    py: Python<'py>,
    encoding: u8,
    code: i32,
    flag: i32,
    language: &str,
    version: i32,
    opaque: i32,
    remark: Option<&str>,
    ext: Option<Bound<'py, PyMapping>>,
    body: Lent<'py>,
    body_apart: bool,
) -> PyResult<Bound<'py, PyBytes>> {
    let encoding = Encoding::from_code(encoding)
        .ok_or_else(|| PyValueError::new_err(format!("no header encoding {encoding}")))?;
    let language_code = command::language_code(language);
    if command::language_name(language_code) != language {
        return Err(PyValueError::new_err(format!("no language {language}")));
    }
    let header = Header {
        code,
        flag,
        language: language_code,
        version,
        opaque,
        remark: remark.map(Cow::Borrowed),
        ext: None,
    };
    let pairs = ext.map(|ext| pairs_of(&ext)).transpose()?;
    let texts = match &pairs {
        None => None,
        Some(pairs) => Some(
            pairs
                .iter()
                .map(|(name, value)| Ok((name.to_str()?, value.to_str()?)))
                .collect::<PyResult<Vec<_>>>()?,
        ),
    };
    let body = body.as_slice();
    let mut start = Vec::with_capacity(256);
    frame::encode_start(
        encoding,
        &header,
        texts.map(Vec::into_iter),
        body.len(),
        &mut start,
    )
    .map_err(|error| bad(&error))?;
    let body = if body_apart { &[] } else { body };
    PyBytes::new_with(py, start.len() + body.len(), |place| {
        let (head, tail) = place.split_at_mut(start.len());
        head.copy_from_slice(&start);
        tail.copy_from_slice(body);
        Ok(())
    })
}

type TextPair<'py> = (Bound<'py, PyString>, Bound<'py, PyString>);

fn pairs_of<'py>(ext: &Bound<'py, PyMapping>) -> PyResult<Vec<TextPair<'py>>> {
    let string = |object: Bound<'py, PyAny>| -> PyResult<_> { Ok(object.cast_into::<PyString>()?) };
    if let Ok(dict) = ext.cast::<PyDict>() {
        return dict
            .iter()
            .map(|(name, value)| Ok((string(name)?, string(value)?)))
            .collect();
    }
    ext.items()?.iter().map(|pair| pair.extract()).collect()
}

/// Decode stored records that follow each other without a gap.
#[pyfunction]
#[pyo3(signature = (data, check_crc = true))]
pub(crate) fn decode_records<'py>(
    py: Python<'py>,
    data: Lent<'py>,
    check_crc: bool,
) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    for found in record::records(data.as_slice(), check_crc) {
        let view = found.map_err(|(at, why)| bad_record("", at, why))?;
        list.append(record_tuple(py, &view)?)?;
    }
    Ok(list)
}

/// Decode stored records into what a client's message is made of.
#[pyfunction]
pub(crate) fn decode_messages<'py>(
    py: Python<'py>,
    data: Lent<'py>,
    broker_name: Bound<'py, PyString>,
    host_text: Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    let mut names = LastNames::default();
    let mut hosts = [LastHost::default(), LastHost::default()];
    let mut topic = LastTopic::default();
    for found in record::records(data.as_slice(), true) {
        let view = found.map_err(|(at, why)| bad_record("", at, why))?;
        let [born, store] = &mut hosts;
        let fields: [Bound<'py, PyAny>; 18] = [
            topic.text(py, view.topic),
            PyBytes::new(py, view.body).into_any(),
            properties_of(py, view.properties, &mut names)?.into_any(),
            PyString::new(py, &offset_id(&view)).into_any(),
            view.queue_id.into_bound_py_any(py)?,
            view.queue_offset.into_bound_py_any(py)?,
            view.physical_offset.into_bound_py_any(py)?,
            view.total_size.into_bound_py_any(py)?,
            view.born_timestamp.into_bound_py_any(py)?,
            born.text(py, view.born_host, &host_text)?,
            view.store_timestamp.into_bound_py_any(py)?,
            store.text(py, view.store_host, &host_text)?,
            view.flag.into_bound_py_any(py)?,
            view.sys_flag.into_bound_py_any(py)?,
            view.body_crc.into_bound_py_any(py)?,
            view.reconsume_times.into_bound_py_any(py)?,
            view.prepared_transaction_offset.into_bound_py_any(py)?,
            broker_name.clone().into_any(),
        ];
        list.append(PyTuple::new(py, fields)?)?;
    }
    Ok(list)
}

/// The host that was written as text last: records that follow each other mostly have the same.
#[derive(Default)]
struct LastHost<'a, 'py> {
    bytes: &'a [u8],
    text: Option<Bound<'py, PyAny>>,
}

impl<'a, 'py> LastHost<'a, 'py> {
    /// Python knows how hosts are written.
    fn text(
        &mut self,
        py: Python<'py>,
        bytes: &'a [u8],
        host_text: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        match &self.text {
            Some(text) if self.bytes == bytes => Ok(text.clone()),
            _ => {
                let text = host_text.call1((PyBytes::new(py, bytes),))?;
                self.bytes = bytes;
                self.text = Some(text.clone());
                Ok(text)
            }
        }
    }
}

/// The topic that was written as text last.
#[derive(Default)]
struct LastTopic<'a, 'py> {
    bytes: &'a [u8],
    text: Option<Bound<'py, PyAny>>,
}

impl<'a, 'py> LastTopic<'a, 'py> {
    fn text(&mut self, py: Python<'py>, bytes: &'a [u8]) -> Bound<'py, PyAny> {
        match &self.text {
            Some(text) if self.bytes == bytes => text.clone(),
            _ => {
                let text = PyString::new(py, &String::from_utf8_lossy(bytes)).into_any();
                self.bytes = bytes;
                self.text = Some(text.clone());
                text
            }
        }
    }
}

/// The names of the last record's properties: the next one mostly has the same, in their order.
#[derive(Default)]
struct LastNames<'a, 'py>(Vec<(&'a [u8], Bound<'py, PyString>)>);

impl<'a, 'py> LastNames<'a, 'py> {
    /// Names that are kept.
    const MAX: usize = 64;

    fn text(&mut self, py: Python<'py>, at: usize, name: &'a [u8]) -> Bound<'py, PyString> {
        if let Some((known, text)) = self.0.get(at) {
            if *known == name {
                return text.clone();
            }
        }
        let text = PyString::new(py, &String::from_utf8_lossy(name));
        if let Some(place) = self.0.get_mut(at) {
            *place = (name, text.clone());
        } else if at == self.0.len() && at < Self::MAX {
            self.0.push((name, text.clone()));
        }
        text
    }
}

/// The properties of a record; of a name that stands there twice the last value counts.
fn properties_of<'a, 'py>(
    py: Python<'py>,
    text: &'a [u8],
    names: &mut LastNames<'a, 'py>,
) -> PyResult<Bound<'py, PyDict>> {
    let found = PyDict::new(py);
    for (at, (name, value)) in properties::entries(text).enumerate() {
        found.set_item(
            names.text(py, at, name),
            PyString::new(py, &String::from_utf8_lossy(value)),
        )?;
    }
    Ok(found)
}

/// Where a message lies: store host and physical offset in hex.
fn offset_id(view: &RecordView<'_>) -> String {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let place = view.physical_offset.to_be_bytes();
    let mut text = String::with_capacity(2 * (view.store_host.len() + place.len()));
    for byte in view.store_host.iter().chain(&place) {
        for digit in [byte >> 4, byte & 15] {
            text.push(
                DIGITS
                    .get(usize::from(digit))
                    .map_or('0', |it| char::from(*it)),
            );
        }
    }
    text
}

pub(crate) fn bad_record(place: &str, at: usize, why: Why) -> PyErr {
    let text = scan::text(why);
    PyValueError::new_err(format!("{place}record at byte {at}: {text}"))
}

fn record_tuple<'py>(py: Python<'py>, view: &RecordView<'_>) -> PyResult<Bound<'py, PyTuple>> {
    let fields: [Bound<'py, PyAny>; 17] = [
        view.total_size.into_bound_py_any(py)?,
        view.body_crc.into_bound_py_any(py)?,
        view.queue_id.into_bound_py_any(py)?,
        view.flag.into_bound_py_any(py)?,
        view.queue_offset.into_bound_py_any(py)?,
        view.physical_offset.into_bound_py_any(py)?,
        view.sys_flag.into_bound_py_any(py)?,
        view.born_timestamp.into_bound_py_any(py)?,
        PyBytes::new(py, view.born_host).into_any(),
        view.store_timestamp.into_bound_py_any(py)?,
        PyBytes::new(py, view.store_host).into_any(),
        view.reconsume_times.into_bound_py_any(py)?,
        view.prepared_transaction_offset.into_bound_py_any(py)?,
        PyBytes::new(py, view.body).into_any(),
        PyString::new(py, &String::from_utf8_lossy(view.topic)).into_any(),
        PyBytes::new(py, view.properties).into_any(),
        view.magic.into_bound_py_any(py)?,
    ];
    PyTuple::new(py, fields)
}
