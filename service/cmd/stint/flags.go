package main

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/notation"
	"github.com/stint-go/stint/internal/spell"
	"github.com/stint-go/stint/service/internal/config"
)

// A settingFlag keeps what a flag was given as text; package config reads it. Flags are not parsed
// as they are given: a value that is wrong is reported together with all others that are, whatever
// source they come from.
type settingFlag struct {
	setting config.Setting
	text    *string
}

func (f settingFlag) String() string {
	if f.text == nil || *f.text == "" {
		return f.setting.Default()
	}
	return *f.text
}

func (f settingFlag) Set(text string) error {
	*f.text = text
	return nil
}

func (f settingFlag) Type() string { return f.setting.Value() }

// storeSettings are those with which a store is asked.
func storeSettings() []string {
	return []string{"store.url", "store.timeout", "store.key_prefix", "store.log_encoding", "store.partitions"}
}

// settingFlags registers the flags of the settings of these names, or of all, and returns what
// reads the configuration from all sources once the flags are parsed. Settings that are secret have
// no flag: a command line can be read by everyone on the machine. A flag without a value, such as
// --tracing, means true.
func settingFlags(p process, flags *pflag.FlagSet, names ...string) func() (config.Config, error) {
	var f struct{ Config string }
	addFlags(flags, "", &f)
	texts := map[string]*string{}
	for _, s := range config.Settings() {
		if len(names) > 0 && !slices.Contains(names, s.Name) || s.Secret() {
			continue
		}
		texts[s.Flag()] = new(string)
		flags.Var(settingFlag{s, texts[s.Flag()]}, s.Flag(), fmt.Sprintf("%s [%s]", s.Help(), s.Env()))
		if s.Value() == "" {
			flags.Lookup(s.Flag()).NoOptDefVal = "true"
		}
	}
	flags.SortFlags = false
	return func() (config.Config, error) {
		sources := config.Sources{Env: p.Env, Variables: p.variables(), Flags: map[string]string{}}
		sources.File, sources.FileFrom = p.env("STINT_CONFIG"), "STINT_CONFIG"
		if flags.Changed("config") {
			sources.File, sources.FileFrom = f.Config, "--config"
		}
		for name, text := range texts {
			if flags.Changed(name) {
				sources.Flags[name] = *text
			}
		}
		loaded, err := config.Load(sources)
		if err != nil {
			return loaded, misused("%v", err)
		}
		return loaded, nil
	}
}

// serveCommand is `stint serve`, with a flag for each setting that is not secret.
func serveCommand(p process) *cobra.Command {
	command := newCommand("serve")
	load := settingFlags(p, command.Flags())
	var f struct{ Demo bool }
	addFlags(command.Flags(), "serve", &f)
	command.RunE = func(command *cobra.Command, _ []string) error {
		loaded, err := load()
		if err != nil {
			return err
		}
		return serve(command.Context(), p, loaded, load, serveOptions{demo: f.Demo})
	}
	return command
}

// flagFault says of a flag that can't be read what came and what is allowed. Faults of flags are
// worded as those of all other inputs are: the flag, what came, what is allowed. An unknown one may be mistyped.
func flagFault(command *cobra.Command, err error) error {
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		var names []string
		command.Flags().VisitAll(func(flag *pflag.Flag) { names = append(names, "--"+flag.Name) })
		return fmt.Errorf("%w%s", err, spell.DidYouMean("--"+unknown.GetSpecifiedName(), names))
	}
	fault, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return err
	}
	allowed, ok := map[string]string{
		"bool": "true or false", "duration": "a duration above 0 such as 500ms, 1m30s or 1d", "float64": "a number",
		"int": "an integer", "int64": "an integer of 64 bits", "uint64": "an integer from 0 to 18446744073709551615",
	}[fault.GetFlag().Value.Type()]
	if !ok {
		return err
	}
	return stint.Invalid("--"+fault.GetFlag().Name, fault.GetValue(), allowed)
}

// A timeoutFlag is a duration above 0. It takes what notation.ParseDuration does, which knows days
// too, and refuses 0, which would never wait.
type timeoutFlag time.Duration

func (f *timeoutFlag) String() string { return time.Duration(*f).String() }
func (f *timeoutFlag) Type() string   { return "duration" }

// Set keeps the value also if it is refused, as the command ends then.
func (f *timeoutFlag) Set(text string) error {
	d, err := notation.ParseDuration(text)
	if *f = timeoutFlag(d); err == nil && d <= 0 {
		err = stint.ErrInvalid
	}
	return err
}
