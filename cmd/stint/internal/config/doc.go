// Package config reads the configuration of the service from a YAML file, the
// environment and command-line flags.
//
// A flag beats the environment, which beats the file, which beats the built-in
// value. Reading is strict: an unknown name, a wrong type and a value out of
// range are faults, and so is a setting whose capability this version does not
// have. All faults of all sources are reported at once, those of the file with
// line and column. No message shows a password or a token.
package config
