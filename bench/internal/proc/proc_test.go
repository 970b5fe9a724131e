package proc

import (
	"net"
	"os"
	"strings"
	"testing"
)

func TestAProgramThatEndsIsReportedWithWhatItSaid(t *testing.T) {
	_, err := Start(t.Context(), map[string]string{"text": "no such luck"}, "cat", "text")
	if err == nil || !strings.Contains(err.Error(), "ended before it listened") || !strings.Contains(err.Error(), "no such luck") {
		t.Errorf("error %v", err)
	}
}

func TestStopEndsTheProgramAndItsFolder(t *testing.T) {
	p, err := StartRedis(t.Context(), -1)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
	if conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", p.Addr); err == nil {
		_ = conn.Close()
		t.Error("it still listens")
	}
	if _, err := os.Stat(p.dir); !os.IsNotExist(err) {
		t.Errorf("its folder: %v", err)
	}
}
