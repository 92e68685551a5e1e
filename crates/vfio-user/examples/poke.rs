//! Looks at a vfio-user device and reads or writes its registers.
//!
//! ```text
//! poke SOCKET                              list regions and interrupts
//! poke SOCKET read REGION OFFSET COUNT     numbers may be hexadecimal with 0x
//! poke SOCKET write REGION OFFSET BYTES    bytes in hexadecimal
//! poke SOCKET reset
//! ```

use std::error::Error;
use std::time::Duration;

use farside_vfio_user::unix::UnixClient;

const USAGE: &str =
    "usage: poke SOCKET [read REGION OFFSET COUNT | write REGION OFFSET BYTES | reset]";

fn number(text: &str) -> Result<u64, Box<dyn Error>> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|error| format!("{text}: {error}").into())
}

fn bytes(text: &str) -> Result<Vec<u8>, Box<dyn Error>> {
    if !text.is_ascii() || text.len() % 2 != 0 {
        return Err(format!("{text}: not pairs of hexadecimal digits").into());
    }
    let pairs = (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16));
    Ok(pairs.collect::<Result<_, _>>()?)
}

fn region_name(index: u32) -> String {
    match index {
        0..=5 => format!("BAR {index}"),
        6 => "ROM".into(),
        7 => "configuration space".into(),
        8 => "VGA".into(),
        _ => format!("region {index}"),
    }
}

fn irq_name(index: u32) -> String {
    let names = ["INTx", "MSI", "MSI-X", "error", "request"];
    names.get(index as usize).map_or_else(|| format!("type {index}"), ToString::to_string)
}

fn list(client: &mut UnixClient) -> Result<(), Box<dyn Error>> {
    let device = client.device_info()?;
    let kind = if device.pci { "PCI device" } else { "device" };
    println!("{kind}, {}resettable", if device.resettable { "" } else { "not " });
    for index in 0..device.regions {
        let region = client.region_info(index)?;
        if region.size == 0 {
            continue;
        }
        let read = if region.readable { "r" } else { "-" };
        let write = if region.writable { "w" } else { "-" };
        let map = if region.mappable { "m" } else { "-" };
        println!("  {:<20} {:#12x} bytes {read}{write}{map}", region_name(index), region.size);
        for area in &region.areas {
            println!("    mappable at {:#x}, {:#x} bytes", area.offset, area.size);
        }
    }
    for index in 0..device.irqs {
        let irq = client.irq_info(index)?;
        if irq.count > 0 {
            println!("  {:<20} {} interrupts", irq_name(index), irq.count);
        }
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (path, command) = arguments.split_first().ok_or(USAGE)?;
    let mut client = UnixClient::connect(path, Duration::from_secs(5))?;
    match command {
        [] => list(&mut client),
        ["reset"] => Ok(client.reset()?),
        ["read", region, offset, count] => {
            let count = usize::try_from(number(count)?)?.min(4096);
            let mut data = vec![0; count];
            client.region_read(u32::try_from(number(region)?)?, number(offset)?, &mut data)?;
            let text: Vec<String> = data.iter().map(|byte| format!("{byte:02x}")).collect();
            println!("{}", text.join(" "));
            Ok(())
        }
        ["write", region, offset, data] => {
            let region = u32::try_from(number(region)?)?;
            Ok(client.region_write(region, number(offset)?, &bytes(data)?)?)
        }
        _ => Err(USAGE.into()),
    }
}
