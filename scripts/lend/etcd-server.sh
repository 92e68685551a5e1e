# shellcheck shell=bash
# The distribution's etcd, for the scripts that need it: unpacked below target/, not installed. Sourced, not run.

# etcd_server: prints where it is; fails where it cannot be had.
etcd_server() {
    local folder=target/etcd server
    server=$folder/usr/bin/etcd
    if [ ! -x "$server" ]; then
        may_install && command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || return 1
        mkdir -p "$folder"
        # A machine that was just set up has no index of packages.
        (cd "$folder" && { apt-get download -qq etcd-server ||
            { apt-get update -qq && apt-get download -qq etcd-server; }; }) >&2 || return 1
        dpkg-deb -x "$folder"/etcd-server_*.deb "$folder" || return 1
    fi
    realpath "$server"
}
