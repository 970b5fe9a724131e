package stint

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// goRoot is where the Go that builds this is installed.
func goRoot(t *testing.T) string {
	t.Helper()
	said, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(said))
}

// The version told is that of Go's data. A newer Go brings newer data: add its digest and
// release to releases.
func TestTimeZones(t *testing.T) {
	script, err := os.ReadFile(filepath.Join(goRoot(t), "lib", "time", "update.bash"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(script), "\nDATA=")
	want, _, _ := strings.Cut(rest, "\n")
	if got := TimeZones(); got.Source != "program" || got.Version != want || len(got.Digest) != 64 {
		t.Errorf("%+v, want the program's, of version %q", got, want)
	}
}

func TestLoadTimeZone(t *testing.T) {
	for _, name := range []string{"", "UTC", "Europe/Berlin", "Asia/Kathmandu", "America/Argentina/Ushuaia"} {
		if location, err := LoadTimeZone(name); err != nil || name != "" && location.String() != name {
			t.Errorf("%q: %v, %v", name, location, err)
		}
	}
	for _, name := range []string{"Local", "Europe", "Europe/", "europe/berlin", "Europe/Berlin\x00", "../UTC", "/etc/localtime", "Mars/Base", " "} {
		var invalid *InvalidError
		if location, err := LoadTimeZone(name); !errors.As(err, &invalid) || location != nil {
			t.Errorf("%q: %v, %v, want an InvalidError", name, location, err)
		}
	}
}

// programOf makes a file of parts, as a program that is asked for its zones.
func programOf(t *testing.T, parts ...[]byte) *zones {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(path, bytes.Join(parts, nil), 0o600); err != nil {
		t.Fatal(err)
	}
	return newZones(func() (*os.File, error) { return os.Open(path) })
}

// Wherever in a program the archive is, and whatever there is like it, it is found whole.
func TestZonesAreFound(t *testing.T) {
	archive, err := os.ReadFile(filepath.Join(goRoot(t), "lib", "time", "zoneinfo.zip"))
	if err != nil {
		t.Fatal(err)
	}
	mark, own := []byte(zipEnd), TimeZones()
	for name, parts := range map[string][][]byte{
		"alone":                {archive},
		"amidst":               {[]byte("\x7fELF"), archive, make([]byte, 3<<20)},
		"after marks":          {mark, mark, bytes.Repeat([]byte(zipEnd+"\xff"), 9), archive},
		"after a part of it":   {archive[len(archive)/2:], archive},
		"behind a chunk":       {make([]byte, 5<<20), archive},
		"its mark in two":      {make([]byte, 1<<20-len(archive)+zipEndBytes-2), archive},
		"its mark right after": {make([]byte, 1<<20-len(archive)+zipEndBytes), archive, mark},
	} {
		t.Run(name, func(t *testing.T) {
			z := programOf(t, parts...)
			if got := z.data(); got != own {
				t.Errorf("%+v, want %+v", got, own)
			}
			if location, err := z.load("Europe/Berlin"); err != nil || location.String() != "Europe/Berlin" {
				t.Errorf("%v, %v", location, err)
			}
		})
	}
}

// Without the archive the zones are those of package time, and the data say so.
func TestZonesOfTheSystem(t *testing.T) {
	for name, z := range map[string]*zones{
		"unreadable": newZones(func() (*os.File, error) { return nil, os.ErrPermission }),
		"empty":      programOf(t),
		"none":       programOf(t, []byte(zipEnd), make([]byte, 2<<20), []byte(zipEnd)),
	} {
		t.Run(name, func(t *testing.T) {
			if got, want := z.data(), (TimeZoneData{Source: "system"}); got != want {
				t.Errorf("%+v, want %+v", got, want)
			}
			location, err := z.load("Europe/Berlin")
			if err != nil {
				t.Fatal(err)
			}
			if got := time.Date(2026, 6, 1, 0, 0, 0, 0, location).UTC().Hour(); got != 22 {
				t.Errorf("midnight in June is %d:00 UTC", got)
			}
			if _, err := z.load("Local"); err == nil {
				t.Error("Local is accepted")
			}
		})
	}
}
