package main

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"github.com/moby/buildkit/frontend/dockerfile/shell"
)

// repository is where the images of releases are. A version is a tag there, without a v.
const repository = "ghcr.io/stint-go/stint"

// image writes the image of one architecture as `docker load` reads it.
//
// It needs no daemon: the file is what `docker save` would write, and the same, byte by byte, for
// the same input.
func (b build) image(context, architecture string) error {
	dockerfile, err := os.Open(filepath.Join(b.deploy, "Dockerfile"))
	if err != nil {
		return err
	}
	defer func() { _ = dockerfile.Close() }()
	image, err := b.follow(dockerfile, context, architecture)
	if err != nil {
		return err
	}
	tag, err := name.NewTag(repository + ":" + b.version)
	if err != nil {
		return err
	}
	file := fmt.Sprintf("stint_%s_linux_%s.image.tar", b.version, architecture)
	return tarball.WriteToFile(filepath.Join(b.out, file), tag, image)
}

// push publishes the images of a release as one, of which each machine gets that of its
// architecture. The order of the architectures is that of the names of their files.
func push(version, out, to string) error {
	tag, err := name.NewTag(to + ":" + version)
	if err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(out, "stint_"+version+"_linux_*.image.tar"))
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return fmt.Errorf("%s has no image of version %s", out, version)
	}
	index := mutate.IndexMediaType(empty.Index, types.DockerManifestList)
	for _, file := range files {
		image, err := tarball.ImageFromPath(file, nil)
		if err != nil {
			return err
		}
		config, err := image.ConfigFile()
		if err != nil {
			return err
		}
		of := v1.Descriptor{Platform: &v1.Platform{OS: config.OS, Architecture: config.Architecture}}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: of})
	}
	return remote.WriteIndex(tag, index, remote.WithAuthFromKeychain(authn.DefaultKeychain))
}

// follow makes an image of a context by the instructions of a Dockerfile, of which it knows those
// that an image without a base needs. Any other is an error. COPY, LABEL, USER, EXPOSE, ENTRYPOINT
// and CMD are what it knows. A Dockerfile that says more must not be made into an image that lacks
// it.
func (b build) follow(dockerfile io.Reader, context, architecture string) (v1.Image, error) {
	parsed, err := parser.Parse(dockerfile)
	if err != nil {
		return nil, err
	}
	stages, _, err := instructions.Parse(parsed.AST, nil)
	if err != nil {
		return nil, err
	}
	if len(stages) != 1 || stages[0].BaseName != "scratch" {
		return nil, fmt.Errorf("it has %d stages; want one, FROM scratch", len(stages))
	}
	image := empty.Image
	config := v1.Config{
		Labels:       map[string]string{"org.opencontainers.image.version": b.version},
		ExposedPorts: map[string]struct{}{},
	}
	words := shell.NewLex(parsed.EscapeToken)
	for _, command := range stages[0].Commands {
		if quoted, ok := command.(instructions.SupportsSingleWordExpansion); ok {
			err := quoted.Expand(func(word string) (string, error) {
				text, _, err := words.ProcessWord(word, shell.EnvsFromSlice(nil))
				return text, err
			})
			if err != nil {
				return nil, err
			}
		}
		switch c := command.(type) {
		case *instructions.CopyCommand:
			if len(c.SourcePaths) != 1 || c.Chown+c.Chmod+c.From != "" || c.Link || c.Parents ||
				len(c.SourceContents)+len(c.ExcludePatterns) > 0 {
				return nil, fmt.Errorf("COPY has options, or other than one source: %s", c)
			}
			layer, err := b.layer(filepath.Join(context, c.SourcePaths[0]), c.DestPath)
			if err != nil {
				return nil, err
			}
			if image, err = mutate.AppendLayers(image, layer); err != nil {
				return nil, err
			}
		case *instructions.LabelCommand:
			for _, label := range c.Labels {
				config.Labels[label.Key] = label.Value
			}
		case *instructions.UserCommand:
			config.User = c.User
		case *instructions.ExposeCommand:
			for _, port := range c.Ports {
				config.ExposedPorts[port+"/tcp"] = struct{}{}
			}
		case *instructions.EntrypointCommand:
			config.Entrypoint = c.CmdLine
		case *instructions.CmdCommand:
			config.Cmd = c.CmdLine
		default:
			return nil, fmt.Errorf("the instruction %s is not known here", command.Name())
		}
	}
	file, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Config, file.Created = "linux", architecture, config, v1.Time{Time: b.time}
	return mutate.ConfigFile(image, file)
}

// layer makes a layer of all files below a folder, which belong to root. Owner, group and times do
// not depend on the machine, so that a release can be built again and compared. Modes are those of
// the files.
func (b build) layer(folder, to string) (v1.Layer, error) {
	var files bytes.Buffer
	archive := tar.NewWriter(&files)
	err := filepath.WalkDir(folder, func(at string, entry fs.DirEntry, err error) error {
		if err != nil || at == folder {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		var link string
		if entry.Type() == fs.ModeSymlink {
			if link, err = os.Readlink(at); err != nil {
				return err
			}
		}
		header, err := tar.FileInfoHeader(info, link)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(folder, at)
		if err != nil {
			return err
		}
		header.Name = path.Join(to, filepath.ToSlash(relative))[1:]
		if entry.IsDir() {
			header.Name += "/"
		}
		header.Uid, header.Gid, header.Uname, header.Gname, header.ModTime = 0, 0, "", "", b.time
		if err := archive.WriteHeader(header); err != nil || !entry.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(at)
		if err != nil {
			return err
		}
		_, err = archive.Write(text)
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := archive.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(files.Bytes())), nil
	})
}
