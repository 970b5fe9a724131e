package rueidis

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/redis/rueidis"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/failover"
	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/internal/redisconn"
	"github.com/stint-go/stint/redisstore"
)

// A Config says where a store's servers are, who the store is to them, how it works, and what it does while they are
// unreachable. Only URL has no default.
type Config struct {
	// URL names the servers:
	//
	//	redis://[user:pass@]host:port/db
	//	redis-sentinel://[user:pass@]host:port,host:port/NAME
	//	redis-cluster://[user:pass@]host:port,host:port
	//	rediss://…, rediss-sentinel://…, rediss-cluster://…   the same with TLS
	//	unix://[user:pass@]/path/to/socket?db=N
	//
	// The port is 6379 (26379 for Sentinel) and db 0 by default. User and password are
	// percent-encoded; with Sentinel they are the primary's. A cluster needs some of its
	// nodes named, Sentinel best all sentinels.
	URL string
	// Username is the user, if the URL names none. Default: "", the default user.
	Username string
	// Password is the password, if the URL has none. Default: "", no password.
	Password string
	// PasswordFile is the name of a file that holds the password; a newline at
	// its end does not count. It is read for every connection that is made. Default: "", none.
	PasswordFile string
	// SentinelUsername, SentinelPassword and SentinelPasswordFile are the same for the
	// sentinels themselves. Default: "", none.
	SentinelUsername, SentinelPassword, SentinelPasswordFile string
	// TLS says what TLS is spoken with, for a URL that has it. The zero value believes whom the system
	// believes, and shows no certificate.
	TLS TLSFiles
	// Store says how the store works: the prefix of its keys, sizes of batches and caches. The zero value is a good
	// choice.
	Store redisstore.Options
	// Failover says how long a call takes at most, and what is done while the servers are unreachable. The zero value
	// bounds a call to 100 ms and admits. Local and Instances are filled in, as [failover.Protect] does.
	Failover failover.Config
}

// TLSFiles are what TLS is spoken with. The files are read for every connection that
// is made, so new certificates need no restart.
type TLSFiles struct {
	// CAFile names a file with the certificates, in PEM, of authorities that servers are
	// believed by. Default: "", which is those of the system.
	CAFile string
	// CertFile and KeyFile name the files of the client's own certificate and its key, in
	// PEM; both or none. Default: "", none.
	CertFile, KeyFile string
	// ServerName is the name that a server's certificate has to have. Default: "", which
	// is the host that is connected to.
	ServerName string
}

// Open makes a store for production, a [redisstore.Store] within [failover.Protect]. It waits for nothing. While Redis
// can't be reached a mode decides, by default one that admits; a call takes 100 ms at most. Open fails only for what is
// wrong with its configuration or the files that it names, with an error that tells all of it and wraps
// stint.ErrInvalid. The store is safe for concurrent use, and has to be closed.
func Open(c Config) (*failover.Store, error) {
	d, err := c.dialConfig()
	if err := prefix.Join(err, c.Store.Validate(), c.Failover.Validate()); err != nil {
		return nil, err
	}
	conn, err := d.connect()
	if err != nil {
		return nil, err
	}
	c.Store.CountInstances = c.Store.CountInstances || c.Failover.Instances == nil
	store, err := redisstore.New(conn, c.Store)
	if err != nil {
		conn.Close()
		return nil, err
	}
	return failover.Protect(store, c.Failover)
}

// Dial makes a connection alone, for a program that calls [redisstore.New] or [redisconn.Conn] itself. Store and
// Failover of the configuration say nothing about it.
//
// It waits for nothing: the connection is made in the background, now and whenever it was lost, and servers may be
// away. Until it is there calls wait for the attempt under way as long as their contexts last, and fail with why there
// is none.
//
// Dial fails only for what is wrong with the configuration or the files that it names, with an error that wraps
// stint.ErrInvalid. No error shows a password. The connection is safe for concurrent use, and has to be closed.
func Dial(c Config) (redisconn.Conn, error) {
	d, err := c.dialConfig()
	if err != nil {
		return nil, err
	}
	return d.connect()
}

// dialConfig reads what a Config says about the connection, and reports all that is wrong with it.
func (c Config) dialConfig() (*dialConfig, error) {
	at, err := parse(c.URL)
	if err != nil {
		return nil, err
	}
	d := &dialConfig{location: at, files: c.TLS}
	var faults []error
	if at.user != "" && c.Username != "" {
		faults = append(faults, stint.Invalid("username", c.Username, "none beside the user of the store URL"))
	}
	if at.hasPassword && (c.Password != "" || c.PasswordFile != "") {
		faults = append(faults, secretFault("password", "none beside the password of the store URL"))
	}
	d.credentials = credentials{at.user + c.Username, at.password + c.Password, c.PasswordFile}
	d.sentinel = credentials{c.SentinelUsername, c.SentinelPassword, c.SentinelPasswordFile}
	faults = append(faults, d.credentials.faults("password"), d.sentinel.faults("sentinel_password"))
	if d.sentinel != (credentials{}) && at.topology != topologySentinel {
		faults = append(faults, secretFault("sentinel_password", "only with Sentinel"))
	}
	if at.tls {
		_, err := c.TLS.config("")
		faults = append(faults, err)
	} else if c.TLS != (TLSFiles{}) {
		faults = append(faults, stint.Invalid("tls", c.TLS, "only with a store URL of TLS, such as rediss://"))
	}
	return d, prefix.Join(faults...)
}

// faults reports what is wrong with credentials.
func (c credentials) faults(param string) error {
	if c.file == "" {
		return nil
	}
	if c.password != "" {
		return secretFault(param, "one of the password and the name of its file")
	}
	if _, err := readFile(c.file); err != nil {
		return stint.Invalid(param+"_file", c.file, "a file that can be read ("+reason(err)+")")
	}
	return nil
}

// secretFault says what is wrong with a secret without showing it.
func secretFault(param, allowed string) error {
	return &stint.InvalidError{Param: param, Value: "given", Allowed: allowed}
}

// dialConfig says how connections to the servers are made.
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
