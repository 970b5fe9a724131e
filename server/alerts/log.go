package alerts

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// redacted is an address without what may be secret: its user, path and query.
func redacted(target *url.URL) string {
	if target == nil {
		return "what is not an address"
	}
	return target.Scheme + "://" + target.Host
}

// secretsOf are the parts of an address that redacted leaves out, in each way that an error may show them.
func secretsOf(target *url.URL) (secrets []string) {
	password, _ := target.User.Password()
	for _, part := range []string{target.Path, target.EscapedPath(), target.RawQuery, target.User.String(), password} {
		if part != "" && part != "/" {
			secrets = append(secrets, part)
		}
	}
	return secrets
}

// safe is the cause of a failed request without secrets of its address.
func (s *Sender) safe(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no answer within %s", s.config.Timeout)
	}
	if fault, ok := errors.AsType[*url.Error](err); ok {
		err = fault.Err // without the address
	}
	for _, secret := range s.secrets {
		if strings.Contains(err.Error(), secret) { // as in a bad Location that repeats the path
			return errors.New("the request failed")
		}
	}
	return err
}

// overflowInterval is how often the log is told of events that found the queue full.
const overflowInterval = time.Minute

// watchOverflow logs each minute how many events found the queue full, until the returned function is called, which logs the rest.
func (s *Sender) watchOverflow() (end func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(overflowInterval)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				s.nearLimit.overflowing.Store(s.nearLimit.reportOverflow())
				s.denied.overflowing.Store(s.denied.reportOverflow())
			case <-done:
				s.nearLimit.reportOverflow()
				s.denied.reportOverflow()
				return
			}
		}
	}()
	return func() {
		close(done)
		<-ended
	}
}
