package stint

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"runtime"
	"sync"
	"time"
	_ "time/tzdata" // the data that TimeZones finds in the program
)

// LoadTimeZone returns the time zone of an IANA name such as Europe/Berlin; "" and UTC
// are UTC, and Local is not a name. It reads the data compiled into the program, so that
// the same program finds the same windows on every machine. The machine's data and the
// variable ZONEINFO, which [time.LoadLocation] prefers, don't count. Only if the program
// can't read its own file, it is [time.LoadLocation]; [TimeZones] tells. The error is an
// [InvalidError]. LoadTimeZone is safe for concurrent use.
func LoadTimeZone(name string) (*time.Location, error) {
	if name == "" || name == "UTC" {
		return time.UTC, nil
	}
	if location, err := ownZones.load(name); err == nil {
		return location, nil
	}
	return nil, Invalid("timezone", name, "an IANA time zone such as Europe/Berlin, or UTC")
}

// TimeZoneData says by which data of time zones a program finds calendar windows.
type TimeZoneData struct {
	// Source is "program" for the data compiled into it, or "system" if that can't be
	// read and [time.LoadLocation] finds the zones.
	Source string
	// Version is IANA's release, such as 2025c; "" if it is not known, as with a newer Go
	// than this version of stint knows, or without data of the program's own.
	Version string
	// Digest is the SHA-256 of the program's data in hexadecimal; "" without. Equal digests
	// mean equal windows.
	Digest string
}

// TimeZones tells which data [LoadTimeZone] goes by. It is safe for concurrent use.
func TimeZones() TimeZoneData { return ownZones.data() }

// releases are IANA's releases by the digest of Go's archive of them.
var releases = map[string]string{
	"8f55634d05f8bca1f7bc7c69c5933428c69357e0bdf565e5ba224e3f88ff12e8": "2025c",
}

// ownZones is the archive of zones that Go's package time/tzdata puts into the program. It
// never changes. Nothing exports it, so it is found in the program's file, once, when a
// zone is first asked for (docs/adr/0012-time-zones-of-the-program.md).
var ownZones = newZones(openProgram)

// zones are time zones by name, read out of a program when they are first asked for.
type zones struct {
	read func() zoneArchive
}

// zoneArchive is an archive of zones; without files there is none.
type zoneArchive struct {
	files  map[string]*zip.File
	digest string
}

func newZones(open func() (*os.File, error)) *zones {
	return &zones{read: sync.OnceValue(func() zoneArchive { return readZones(open) })}
}

func (z *zones) load(name string) (*time.Location, error) {
	archive := z.read()
	if name == "Local" {
		return nil, errNoZone
	}
	if archive.files == nil {
		return time.LoadLocation(name)
	}
	file := archive.files[name]
	if file == nil {
		return nil, errNoZone
	}
	r, err := file.Open()
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(r) // of a file in memory, which needs no closing
	if err != nil {
		return nil, err
	}
	return time.LoadLocationFromTZData(name, data)
}

func (z *zones) data() TimeZoneData {
	archive := z.read()
	if archive.files == nil {
		return TimeZoneData{Source: "system"}
	}
	return TimeZoneData{Source: "program", Version: releases[archive.digest], Digest: archive.digest}
}

var errNoZone = errors.New("no such time zone")

// openProgram opens the file of the running program, on Linux also if another has taken
// its place since.
func openProgram() (*os.File, error) {
	if runtime.GOOS == "linux" {
		if file, err := os.Open("/proc/self/exe"); err == nil {
			return file, nil
		}
	}
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return os.Open(path) // #nosec G304 -- the program's own file
}

// readZones finds the archive of zones in a program.
func readZones(open func() (*os.File, error)) (found zoneArchive) {
	file, err := open()
	if err != nil {
		return found
	}
	defer func() { _ = file.Close() }()
	chunk := make([]byte, 1<<20)
	for from := int64(0); ; {
		n, err := file.ReadAt(chunk, from)
		for at := 0; ; at++ {
			next := bytes.Index(chunk[at:n], []byte(zipEnd))
			if next < 0 {
				break
			}
			at += next
			if found = zonesEndingAt(file, from+int64(at)); found.files != nil {
				return found
			}
		}
		if err != nil {
			return found
		}
		from += int64(n - len(zipEnd) + 1) // the mark may lie across the chunks' border
	}
}

// The record at the end of an archive (APPNOTE.TXT of PKWARE, 4.3.16): its mark, its
// length without a comment, and where it has the length of the directory and how far from
// the archive's start that is.
const (
	zipEnd       = "PK\x05\x06"
	zipEndBytes  = 22
	zipDirectory = 12
	zipOffset    = 16
	mostZones    = 16 << 20 // bytes of an archive of zones; it has 400 KiB
)

// zonesEndingAt reads the archive whose last record is at a place in a program, if there
// is one and it has zones.
func zonesEndingAt(r io.ReaderAt, at int64) (found zoneArchive) {
	var end [zipEndBytes]byte
	if _, err := r.ReadAt(end[:], at); err != nil {
		return found
	}
	before := int64(binary.LittleEndian.Uint32(end[zipDirectory:])) + int64(binary.LittleEndian.Uint32(end[zipOffset:]))
	if before > at || before > mostZones {
		return found
	}
	archive := make([]byte, before+zipEndBytes)
	if _, err := r.ReadAt(archive, at-before); err != nil {
		return found
	}
	z, err := zip.NewReader(bytes.NewReader(archive), int64(len(archive)))
	if err != nil {
		return found
	}
	files := make(map[string]*zip.File, len(z.File))
	for _, file := range z.File {
		files[file.Name] = file
	}
	if files["Etc/UTC"] == nil || files["Europe/Berlin"] == nil {
		return found
	}
	digest := sha256.Sum256(archive)
	return zoneArchive{files, hex.EncodeToString(digest[:])}
}
