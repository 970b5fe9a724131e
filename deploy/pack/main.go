// Command pack makes of a built program what people install: images, packages for Debian and RPM, the chart and the
// manifests for Kubernetes. scripts/release calls it, in the folder deploy.
//
//	pack VERSION SOURCE OUT
//	pack push VERSION OUT [REPOSITORY]
//
// The second one publishes the images of OUT as one image of several architectures, with the rights of `docker login`.
// SOURCE has man/ and completions/, and for each architecture linux_ARCH/, the context of the Dockerfile. The time of
// all files is $SOURCE_DATE_EPOCH.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// A build is one release.
type build struct {
	version string // without the v
	// the folder of the Dockerfile, of packages, and of the chart
	deploy string
	source string
	out    string
	time   time.Time
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "pack:", err)
		os.Exit(1)
	}
}

// run packs a release: an image, a deb and an rpm for each architecture, and the chart; or pushes the
// images of one that was packed. All times in what it makes are SOURCE_DATE_EPOCH's.
func run(args []string) error {
	if len(args) > 2 && len(args) < 5 && args[0] == "push" && strings.HasPrefix(args[1], "v") {
		to := repository
		if len(args) == 4 {
			to = args[3]
		}
		return push(args[1][1:], args[2], to)
	}
	if len(args) != 3 || !strings.HasPrefix(args[0], "v") {
		return errors.New("usage: pack VERSION SOURCE OUT, with a version such as v0.1.0")
	}
	seconds, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		return fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	b := build{version: args[0][1:], deploy: ".", source: args[1], out: args[2], time: time.Unix(seconds, 0).UTC()}
	contexts, err := filepath.Glob(filepath.Join(b.source, "linux_*"))
	if err != nil {
		return err
	}
	for _, context := range contexts {
		_, architecture, _ := strings.Cut(filepath.Base(context), "_")
		if err := b.image(context, architecture); err != nil {
			return fmt.Errorf("the image for %s: %w", architecture, err)
		}
		for _, format := range []string{"deb", "rpm"} {
			if err := b.linuxPackage(format, context, architecture); err != nil {
				return fmt.Errorf("the %s for %s: %w", format, architecture, err)
			}
		}
	}
	return b.chart()
}
