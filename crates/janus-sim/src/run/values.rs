//! Meaning of a script's expressions to a system call: numbers, flags, and the byte layouts of the C interface.

use crate::script::Expr;
use janus_posix::{Errno, abi};

/// A number, a name, or names joined by `|`.
pub(super) fn int(expr: &Expr) -> Result<i64, String> {
    match expr {
        Expr::Int(number) => Ok(*number),
        Expr::Word(name) => named(name),
        Expr::Or(left, right) => Ok(int(left)? | int(right)?),
        _ => Err(format!("`{expr}` is not a number")),
    }
}

fn named(name: &str) -> Result<i64, String> {
    let value = abi::by_name(name).or_else(|| Errno::by_name(name).map(|errno| errno.0));
    value
        .map(i64::from)
        .ok_or_else(|| format!("`{name}` is not a name known here"))
}

/// Like [`int`], but as a C `int`; an unsigned one is the same bits.
pub(super) fn c_int(expr: &Expr) -> Result<i32, String> {
    let number = int(expr)?;
    u32::try_from(number)
        .map(u32::cast_signed)
        .or_else(|_| i32::try_from(number))
        .map_err(|_| format!("`{expr}` does not fit a C int"))
}

/// Like [`c_int`], but `default` where the script says `...`.
pub(super) fn c_int_or(expr: &Expr, default: i32) -> Result<i32, String> {
    if *expr == Expr::Ellipsis {
        Ok(default)
    } else {
        c_int(expr)
    }
}

/// A length.
pub(super) fn len(expr: &Expr) -> Result<usize, String> {
    usize::try_from(int(expr)?).map_err(|_| format!("`{expr}` is not a length"))
}

/// A number by reference: `[1]`.
pub(super) fn by_reference(expr: &Expr) -> Result<i32, String> {
    match expr {
        Expr::List(items) if items.len() == 1 => c_int(&items[0]),
        _ => Err(format!(
            "expected one number in brackets, such as `[1]`, found `{expr}`"
        )),
    }
}

/// An option's value as bytes: `[1]`, or `{onoff=1, linger=0}`.
pub(super) fn option_bytes(expr: &Expr) -> Result<Vec<u8>, String> {
    if let Expr::Bytes(text) = expr {
        return Ok(text.clone());
    }
    if let Expr::Struct(fields) = expr {
        return match fields.as_slice() {
            [(on, value), (linger, seconds)] if on == "onoff" && linger == "linger" => {
                Ok([c_int(value)?.to_ne_bytes(), c_int(seconds)?.to_ne_bytes()].concat())
            }
            _ => Err(format!("`{expr}` is not a structure known here")),
        };
    }
    Ok(by_reference(expr)?.to_ne_bytes().to_vec())
}

/// The lengths in a vector of buffers: `[{..., 100}, {..., 50}], 2`.
pub(super) fn vector(vector: &Expr, count: &Expr) -> Result<Vec<usize>, String> {
    let Expr::List(items) = vector else {
        return Err(format!("`{vector}` is not a vector of buffers"));
    };
    if items.len() != len(count)? {
        return Err(format!(
            "the vector has {} buffers, not {count}",
            items.len()
        ));
    }
    let each = items.iter().map(|item| match item {
        Expr::Struct(fields) if fields.len() == 2 => len(&fields[1].1),
        _ => Err(format!("`{item}` is not a buffer such as `{{..., 100}}`")),
    });
    each.collect()
}

/// A field of a structure.
pub(super) fn field<'e>(structure: &'e Expr, name: &str) -> Result<&'e Expr, String> {
    let Expr::Struct(fields) = structure else {
        return Err(format!(
            "`{structure}` is not a structure with a field `{name}`"
        ));
    };
    let found = fields.iter().find(|(field, _)| field == name);
    found
        .map(|(_, value)| value)
        .ok_or_else(|| format!("`{structure}` has no field `{name}`"))
}

/// `struct sock_extended_err` as recvmsg gives it out of an error queue, with the address of an offender that there is none of.
fn extended_error(error: &Expr, v6: bool) -> Result<Vec<u8>, String> {
    let number = |name: &str| c_int(field(error, name)?);
    let byte = |name: &str| {
        let number = number(name)?;
        u8::try_from(number).map_err(|_| format!("`{name}` does not fit a byte"))
    };
    let mut bytes = number("ee_errno")?.to_ne_bytes().to_vec();
    bytes.extend([byte("ee_origin")?, byte("ee_type")?, byte("ee_code")?, 0]);
    bytes.extend(number("ee_info")?.to_ne_bytes());
    bytes.extend(number("ee_data")?.to_ne_bytes());
    let offender = if v6 { 28 } else { 16 };
    bytes.resize(bytes.len() + offender, 0);
    Ok(bytes)
}

/// Control messages as the C interface lays them out: each a header of two words, aligned to one.
pub(super) fn control_bytes(list: &Expr) -> Result<Vec<u8>, String> {
    let Expr::List(messages) = list else {
        return Err(format!("`{list}` is not a list of control messages"));
    };
    let mut bytes = Vec::new();
    for message in messages {
        let level = c_int(field(message, "cmsg_level")?)?;
        let data = match field(message, "cmsg_data")? {
            error @ Expr::Struct(_) => extended_error(error, level == abi::SOL_IPV6)?,
            number => c_int(number)?.to_ne_bytes().to_vec(),
        };
        let len = 2 * size_of::<usize>() + data.len();
        bytes.extend(len.to_ne_bytes());
        bytes.extend(level.to_ne_bytes());
        bytes.extend(c_int(field(message, "cmsg_type")?)?.to_ne_bytes());
        bytes.extend(data);
        bytes.resize(bytes.len().next_multiple_of(size_of::<usize>()), 0);
    }
    Ok(bytes)
}
