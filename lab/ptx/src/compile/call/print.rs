//! `vprintf`: C's formats.

use crate::KernelError;
use crate::machine::access::Machine;

/// Formats what one lane prints; none: the warp parks.
pub(super) fn text(
    machine: &mut Machine<'_, '_>,
    format: u64,
    values: u64,
    lane: usize,
) -> Result<Option<String>, KernelError> {
    let Some(format) = machine.text(format, lane)? else { return Ok(None) };
    let format = String::from_utf8_lossy(&format).into_owned();
    let mut rest = format.as_str();
    let mut text = String::new();
    let mut next = values;
    while let Some((before, after)) = rest.split_once('%') {
        text.push_str(before);
        let Some(end) =
            after.find(|letter: char| letter.is_ascii_alphabetic() && !"hlLjztq".contains(letter) || letter == '%')
        else {
            text.push('%');
            rest = after;
            continue;
        };
        let (flags, conversion) = after.split_at(end);
        rest = conversion.get(1..).unwrap_or_default();
        let conversion = conversion.chars().next().unwrap_or('%');
        if conversion == '%' {
            text.push('%');
            continue;
        }
        let long = flags.contains(['l', 'j', 'z', 't', 'q']) || "eEfFgGaAps".contains(conversion);
        let size = if long { 8 } else { 4 };
        next = next.next_multiple_of(size);
        let value = if long {
            machine.bytes::<8>(next, lane)?.map(u64::from_le_bytes)
        } else {
            machine.bytes::<4>(next, lane)?.map(|bytes| u64::from(u32::from_le_bytes(bytes)))
        };
        let Some(value) = value else { return Ok(None) };
        next += size;
        let string = if conversion == 's' { machine.text(value, lane)? } else { Some(Vec::new()) };
        let Some(string) = string else { return Ok(None) };
        text.push_str(&convert(flags, conversion, long, value, &String::from_utf8_lossy(&string)));
    }
    text.push_str(rest);
    Ok(Some(text))
}

/// Formats one value.
fn convert(flags: &str, conversion: char, long: bool, value: u64, string: &str) -> String {
    let numbers = flags.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let sign_flags: String = numbers.chars().take_while(|letter| "-+ #0".contains(*letter)).collect();
    let (width, precision) = match numbers.get(sign_flags.len()..).unwrap_or_default().split_once('.') {
        Some((width, precision)) => (width, Some(precision.parse::<usize>().unwrap_or(0).min(1000))),
        None => (numbers.get(sign_flags.len()..).unwrap_or_default(), None),
    };
    let width = width.parse::<usize>().unwrap_or(0).min(1000);
    let signed = if long { value.cast_signed() } else { i64::from(value as i32) };
    let float = f64::from_bits(value);
    let body = match conversion {
        'd' | 'i' => signed.to_string(),
        'u' => value.to_string(),
        'x' => format!("{value:x}"),
        'X' => format!("{value:X}"),
        'o' => format!("{value:o}"),
        'c' => char::from(value as u8).to_string(),
        'p' => format!("{value:#x}"),
        's' => string.chars().take(precision.unwrap_or(usize::MAX)).collect(),
        'f' | 'F' => format!("{float:.*}", precision.unwrap_or(6)),
        'e' | 'E' => exponent(float, precision.unwrap_or(6)),
        _ => general(float, precision.unwrap_or(6).max(1)),
    };
    let body = if sign_flags.contains('+') && "dieEfFgG".contains(conversion) && !body.starts_with('-') {
        format!("+{body}")
    } else {
        body
    };
    let missing = width.saturating_sub(body.chars().count());
    if sign_flags.contains('-') {
        body + &" ".repeat(missing)
    } else if sign_flags.contains('0') && !"sc".contains(conversion) {
        let digits = body.trim_start_matches(['-', '+']);
        let sign = body.get(..body.len() - digits.len()).unwrap_or_default();
        format!("{sign}{}{digits}", "0".repeat(missing))
    } else {
        " ".repeat(missing) + &body
    }
}

/// `%e`: at least two digits of exponent.
fn exponent(value: f64, precision: usize) -> String {
    let text = format!("{value:.precision$e}");
    match text.split_once('e') {
        Some((mantissa, exponent)) => {
            let power: i32 = exponent.parse().unwrap_or(0);
            format!("{mantissa}e{}{:02}", if power < 0 { '-' } else { '+' }, power.abs())
        }
        None => text,
    }
}

/// `%g`: the shorter of both, without trailing zeros.
fn general(value: f64, precision: usize) -> String {
    let scientific = exponent(value, precision - 1);
    let Some((mantissa, power)) = scientific.split_once('e') else { return scientific };
    let power: i32 = power.parse().unwrap_or(0);
    let trim = |text: &str| {
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text.to_owned() }
    };
    if power < -4 || power >= precision as i32 {
        return format!("{}e{}{:02}", trim(mantissa), if power < 0 { '-' } else { '+' }, power.abs());
    }
    trim(&format!("{value:.*}", (precision as i32 - 1 - power).max(0) as usize))
}
