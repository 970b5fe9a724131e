package rueidis

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"

	"github.com/redis/rueidis"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/redisstore"
)

// reach is how a store gets to its servers.
type dialConfig struct {
	location

	files                 TLSFiles
	credentials, sentinel credentials
}

// credentials are who the store is to a server.
type credentials struct {
	user, password string
	file           string // the password's; "" for none
}

// read reads the password from its file, if it is in one.
func (c credentials) read(rueidis.AuthCredentialsContext) (rueidis.AuthCredentials, error) {
	found := rueidis.AuthCredentials{Username: c.user, Password: c.password}
	if c.file != "" {
		text, err := readFile(c.file)
		if err != nil {
			return rueidis.AuthCredentials{}, fmt.Errorf("the file of the password: %w", err)
		}
		found.Password = string(bytes.TrimRight(text, "\r\n"))
	}
	return found, nil
}

// maxSecretBytes bounds the files of passwords and certificates.
const maxSecretBytes = 1 << 20

// readFile reads a file that is neither empty nor huge.
func readFile(name string) ([]byte, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() == 0 || info.Size() > maxSecretBytes {
		return nil, &fs.PathError{Op: "read", Path: name, Err: errors.New("not a file of 1 byte to 1 MiB")}
	}
	return os.ReadFile(name) //nolint:gosec // the operator names the file
}

// dial connects to an address.
func (d *dialConfig) dial(ctx context.Context, address string) (*socket, error) {
	near, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(near, d.network, address)
	if err == nil && d.tls {
		conn, err = d.secure(ctx, conn, address)
	}
	if err != nil {
		return nil, err
	}
	return newSocket(conn, address), nil
}

// secure speaks TLS over a connection to an address.
func (d *dialConfig) secure(ctx context.Context, conn net.Conn, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	config, err := d.files.config(host)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	ctx, cancel := context.WithTimeout(ctx, replyTimeout)
	defer cancel()
	secured := tls.Client(conn, config)
	if err := secured.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return secured, nil
}

// config reads the files: whenever a connection is made, so that what has changed in
// them counts from then on.
func (f TLSFiles) config(host string) (*tls.Config, error) {
	config := &tls.Config{ServerName: cmp.Or(f.ServerName, host), MinVersion: tls.VersionTLS12}
	if f.CAFile != "" {
		text, err := readFile(f.CAFile)
		if err != nil {
			return nil, stint.Invalid("tls.ca_file", f.CAFile, "a file of certificates ("+reason(err)+")")
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, stint.Invalid("tls.ca_file", f.CAFile, "a file with a certificate in PEM")
		}
	}
	if f.CertFile != "" || f.KeyFile != "" {
		if f.CertFile == "" || f.KeyFile == "" {
			return nil, stint.Invalid("tls.cert_file", f.CertFile, "a certificate together with tls.key_file")
		}
		certificate, err := tls.LoadX509KeyPair(f.CertFile, f.KeyFile)
		if err != nil {
			return nil, stint.Invalid("tls.cert_file", f.CertFile, "a certificate and its key ("+reason(err)+")")
		}
		config.Certificates = []tls.Certificate{certificate}
	}
	return config, nil
}

// reason is an error without the name of the file.
func reason(err error) string {
	var failed *fs.PathError
	if errors.As(err, &failed) {
		return failed.Err.Error()
	}
	return err.Error()
}

// connect makes a connection, in the background.
func (d *dialConfig) connect() (redisstore.Conn, error) {
	switch d.topology {
	case topologySentinel:
		c, err := newWatched(d)
		return conn{c}, err
	case topologyCluster:
		return conn{newCluster(d)}, nil
	default:
		c := &singleConn{dial: func(ctx context.Context) (*socket, error) { return d.dial(ctx, d.hosts[0]) }}
		options := d.clientOptions(d.credentials)
		options.SelectDB = d.database
		return conn{c}, c.start(options)
	}
}
