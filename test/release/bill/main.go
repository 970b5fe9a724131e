// Bill prints the bill of materials of a program, in CycloneDX: the Go modules that it was built
// of, which it says itself, and the packages of npm that its dashboard is made of, by their lock
// file.
//
//	bill PROGRAM package-lock.json VERSION
package main

import (
	"cmp"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/CycloneDX/cyclonedx-go"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bill:", err)
		os.Exit(1)
	}
}

// run writes the bill of a program and of the dashboard's packages to standard output, in an order that
// does not depend on the inputs' order.
func run(args []string) error {
	if len(args) != 3 {
		return errors.New("usage: bill PROGRAM package-lock.json VERSION")
	}
	modules, err := modulesOf(args[0])
	if err != nil {
		return err
	}
	packages, err := packagesOf(args[1])
	if err != nil {
		return err
	}
	components := append(modules, packages...)
	slices.SortFunc(components, func(a, b cyclonedx.Component) int { return cmp.Compare(a.PackageURL, b.PackageURL) })
	bom := cyclonedx.NewBOM()
	bom.Metadata = &cyclonedx.Metadata{Component: &cyclonedx.Component{
		Type: cyclonedx.ComponentTypeApplication, Name: "stint", Version: args[2], BOMRef: "stint",
		PackageURL: "pkg:golang/github.com/stint-go/stint/service@" + args[2],
		Licenses:   &cyclonedx.Licenses{{License: &cyclonedx.License{ID: "Apache-2.0"}}},
	}}
	bom.Components = &components
	encoder := cyclonedx.NewBOMEncoder(os.Stdout, cyclonedx.BOMFileFormatJSON)
	encoder.SetPretty(true)
	return encoder.EncodeVersion(bom, cyclonedx.SpecVersion1_6)
}

// modulesOf are the modules of others that a program says it was built of.
func modulesOf(program string) (components []cyclonedx.Component, err error) {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return nil, err
	}
	for _, module := range info.Deps {
		if module.Replace != nil {
			module = module.Replace
		}
		if strings.HasPrefix(module.Path+"/", "github.com/stint-go/stint/") || strings.HasPrefix(module.Path, ".") {
			continue
		}
		c := component("golang", module.Path, module.Version)
		if sum, found := strings.CutPrefix(module.Sum, "h1:"); found { // the checksum database's, of a list of files
			c.Properties = &[]cyclonedx.Property{{Name: "go:h1", Value: sum}}
		}
		components = append(components, c)
	}
	return components, nil
}

// packagesOf are the packages of a lock file that are in the dashboard, and not only in its making.
func packagesOf(lock string) (components []cyclonedx.Component, err error) {
	text, err := os.ReadFile(lock)
	if err != nil {
		return nil, err
	}
	var locked struct {
		Packages map[string]struct {
			Version, License, Integrity string
			Dev, Optional               bool
		}
	}
	if err := json.Unmarshal(text, &locked); err != nil {
		return nil, fmt.Errorf("%s: %w", lock, err)
	}
	for path, p := range locked.Packages {
		at := strings.LastIndex(path, "node_modules/")
		if at < 0 || p.Dev {
			continue
		}
		c := component("npm", strings.Replace(path[at+len("node_modules/"):], "@", "%40", 1), p.Version)
		if p.License != "" {
			c.Licenses = &cyclonedx.Licenses{{License: &cyclonedx.License{ID: p.License}}}
		}
		if digest, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(p.Integrity, "sha512-")); err == nil &&
			len(digest) == 64 {
			c.Hashes = &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA512, Value: hex.EncodeToString(digest)}}
		}
		components = append(components, c)
	}
	return components, nil
}

// component is a library, by its package URL.
func component(kind, name, version string) cyclonedx.Component {
	url := "pkg:" + kind + "/" + name + "@" + version
	return cyclonedx.Component{
		Type: cyclonedx.ComponentTypeLibrary, Name: strings.Replace(name, "%40", "@", 1), Version: version,
		BOMRef: url, PackageURL: url,
	}
}
