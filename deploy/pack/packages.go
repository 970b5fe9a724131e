package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // the formats that are known
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

// linuxPackage writes the package of one architecture, as packages/nfpm.yaml describes it.
func (b build) linuxPackage(format, context, architecture string) error {
	source, err := filepath.Abs(b.source)
	if err != nil {
		return err
	}
	program, err := filepath.Abs(filepath.Join(context, "root/bin/stint"))
	if err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(b.deploy, "packages/nfpm.yaml"))
	if err != nil {
		return err
	}
	values := map[string]string{
		"ARCH": architecture, "VERSION": b.version, "TIME": b.time.Format(time.RFC3339),
		"PROGRAM": program, "SHARE": source,
	}
	// All of the file, since nfpm itself leaves some of its fields as they are.
	expanded := os.Expand(string(text), func(name string) string { return values[name] })
	config, err := nfpm.Parse(strings.NewReader(expanded))
	if err != nil {
		return err
	}
	info, err := config.Get(format)
	if err != nil {
		return err
	}
	packager, err := nfpm.Get(format)
	if err != nil {
		return err
	}
	// The sources are named from the folder of packages/nfpm.yaml.
	for _, file := range info.Contents {
		if file.Source != "" && !filepath.IsAbs(file.Source) {
			file.Source = filepath.Join(b.deploy, "packages", file.Source)
		}
	}
	for _, script := range []*string{&info.Scripts.PostInstall, &info.Scripts.PreRemove, &info.Scripts.PostRemove} {
		*script = filepath.Join(b.deploy, "packages", *script)
	}
	info = nfpm.WithDefaults(info)
	file, err := os.Create(filepath.Join(b.out, fmt.Sprintf("stint_%s_linux_%s.%s", b.version, architecture, format)))
	if err != nil {
		return err
	}
	return errors.Join(packager.Package(info, file), file.Close())
}
