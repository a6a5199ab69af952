# Packages of any Debian suite, unpacked into a folder; to be sourced after lib.sh. The machine's own
# apt stays as it is: sources, state and cache are private, and the mirror is the one that it uses.

apt_mirror() {
    apt-get indextargets --format '$(REPO_URI) $(RELEASE)' | awk '$2 == "bookworm" { print $1; exit }'
}

apt_options() {
    local dir=$CACHE/apt
    printf -- '-o\nDir::Etc::sourcelist=%s/sources.list\n-o\nDir::Etc::sourceparts=/dev/null\n' "$dir"
    printf -- '-o\nDir::State=%s/state\n-o\nDir::Cache=%s/cache\n-o\nDir::State::status=%s/status\n' "$dir" "$dir" "$dir"
    printf -- '-o\nAPT::Sandbox::User=root\n-o\nAcquire::Languages=none\n'
}

apt_private() {
    local dir=$CACHE/apt options mirror suite
    mapfile -t options < <(apt_options)
    if [ ! -e "$dir/updated" ] || [ -n "$(find "$dir/updated" -mmin +720)" ]; then
        mirror=$(apt_mirror)
        [ -n "$mirror" ] || die "the machine's apt has no source for bookworm; run 'apt-get update' once"
        mkdir -p "$dir"/state/lists/partial "$dir"/cache/archives/partial
        : >"$dir/status"
        for suite in bookworm trixie forky; do
            printf 'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s %s main\n' "$mirror" "$suite"
        done >"$dir/sources.list"
        apt-get "${options[@]}" update -q
        touch "$dir/updated"
    fi
    "$@" "${options[@]}"
}

# fetch_deb SUITE "PACKAGE ..." FOLDER: the newest version of that suite, unpacked.
fetch_deb() {
    local suite=$1 packages=$2 out=$3 work name version specs=()
    apt_private true
    for name in $packages; do
        version=$(apt_private apt-cache madison "$name" | awk -F'|' -v s="$suite/main" \
            '$3 ~ s && $3 ~ /Packages/ { gsub(/ /, "", $2); print $2; exit }')
        [ -n "$version" ] || die "no package $name in $suite"
        specs+=("$name=$version")
    done
    work=$(mktemp -d "$CACHE/fetch.XXXXXX")
    mapfile -t options < <(apt_options)
    (cd "$work" && apt-get "${options[@]}" download -q "${specs[@]}")
    rm -rf "$out"
    mkdir -p "$out"
    for name in "$work"/*.deb; do dpkg -x "$name" "$out"; done
    printf '%s\n' "${specs[@]}" >"$out/.packages"
    rm -rf "$work"
}
