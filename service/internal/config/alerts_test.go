package config_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint/service/internal/config"
)

func TestAlerts(t *testing.T) {
	long := strings.Repeat("x", 16)
	keys, short := write(t, long+"\r\n"), write(t, "short\n")
	got, err := config.Load(config.Sources{
		File:  write(t, "alerts: {denials: false, near_limit: 5, clients: hash, secret_file: "+keys+"}\nlog: {denials: sampled, clients: plain, key_file: "+keys+"}\n"),
		Env:   env(map[string]string{"STINT_ALERTS_URL": "https://hooks.example.com/T0/B0?token=hush", "STINT_ALERTS_NEAR_LIMIT": "7"}),
		Flags: map[string]string{"alerts-max-queue": "5", "alerts-url": "http://not.there"},
	})
	want := config.Alerts{
		URL: "https://hooks.example.com/T0/B0?token=hush", Secret: long, SecretFile: keys, NearLimit: 7, HashClients: true,
		Timeout: 5 * time.Second, MaxQueue: 5, MaxBatch: 100, MaxTries: 10,
	}
	if err != nil || got.Alerts != want {
		t.Errorf("%+v, %v, want %+v", got.Alerts, err, want)
	}
	if !got.Log.Denials || !got.Log.PlainClients || string(got.Log.Key) != long {
		t.Errorf("log: %+v", got.Log)
	}
	const there = "alerts: {url: https://h, "
	for text, want := range map[string]string{
		"alerts: {url: \"ftp://h/hush\"}":                  `:1:15: alerts.url is "redacted"; allowed: the URL of a webhook, by http:// or https://`,
		"alerts: {denials: false}":                         ":1:19: alerts.denials is given without alerts.url; allowed: only with it",
		there + "near_limit: 100}":                         ":1:38: alerts.near_limit is 100; allowed: 1 to 99, or off",
		there + "clients: hash}":                           ":1:35: alerts.clients is hash; allowed: only with alerts.secret or alerts.secret_file",
		there + "secret: hush}":                            ":1:34: alerts.secret has 4 bytes; allowed: 16 or more",
		there + "secret: hush, secret_file: " + keys + "}": ":1:53: alerts.secret_file is given beside alerts.secret; allowed: one of the two",
		there + "secret_file: " + short + "}":              ":1:39: alerts.secret_file: " + short + " has 5 bytes; allowed: 16 or more",
		there + "denials: false, near_limit: off}":         ":1:35: alerts.denials is false and alerts.near_limit is off; allowed: one of the two at least",
		"log: {key_file: " + short + ".none}":              ":1:17: log.key_file: " + short + ".none: no such file or directory",
		"log: {denials: all}":                              `:1:16: log.denials is "all"; allowed: off or sampled`,
		there + "max_queue: 0, max_tries: 0, timeout: 1h}": ":1:37: alerts.max_queue is 0; allowed: 1 to 1000000",
	} {
		file := write(t, text)
		if _, err := config.Load(config.Sources{File: file}); err == nil || !strings.HasPrefix(err.Error(), "stint: "+file+want) || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
