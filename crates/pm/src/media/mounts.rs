//! Mount options, from `/proc/self/mountinfo`.

/// The value of option `huge=` of the tmpfs mounted as device `device` (major, minor), if it has
/// one; `mountinfo` is the text of `/proc/self/mountinfo`.
pub(super) fn huge_option(mountinfo: &str, device: (u32, u32)) -> Option<&str> {
    let wanted = format!("{}:{}", device.0, device.1);
    let line = mountinfo.lines().find(|line| line.split(' ').nth(2) == Some(&wanted))?;
    // Optional fields end with a lone dash: type, source and the file system's options follow.
    let (_, rest) = line.split_once(" - ")?;
    rest.split(' ').nth(2)?.split(',').find_map(|option| option.strip_prefix("huge="))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
25 24 0:23 / /dev/shm rw,relatime shared:3 - tmpfs tmpfs rw,size=24684092k
42 27 0:39 / /huge rw,relatime - tmpfs x rw,size=65536k,huge=within_size
";

    #[test]
    fn the_option_is_found_by_device() {
        assert_eq!(huge_option(TEXT, (0, 39)), Some("within_size"));
        assert_eq!(huge_option(TEXT, (0, 23)), None);
        assert_eq!(huge_option(TEXT, (0, 3)), None);
        assert_eq!(huge_option("", (0, 23)), None);
    }
}
