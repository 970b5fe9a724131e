package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/document"
	"github.com/stint-go/stint/internal/document/rulefile"
	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/adminapi"
	"github.com/stint-go/stint/service/internal/config"
	"github.com/stint-go/stint/service/internal/domainsource"
	"github.com/stint-go/stint/service/internal/rulestore"
	"github.com/stint-go/stint/service/internal/rulestore/mongo"
	"github.com/stint-go/stint/service/internal/server/rls/domains"
	"github.com/stint-go/stint/service/internal/server/rulesapi"
)

// rulesCommand is `stint rules`, which has commands alone.
func rulesCommand(p process) *cobra.Command {
	command := newCommand("rules")
	command.RunE = func(*cobra.Command, []string) error { return nil } // its Args are never right
	command.Args = func(command *cobra.Command, args []string) error {
		if len(args) == 0 {
			return errors.New("missing subcommand: see stint rules --help")
		}
		return knownCommand(command, args)
	}
	command.AddCommand(
		validateCommand(p), explainCommand(p),
		listRulesCommand(p), patchRuleCommand(p), overrideCommand(p), applyCommand(p), diffCommand(p), revisionsCommand(p),
		rollbackCommand(p), importCommand(p),
	)
	return command
}

// validateCommand is `stint rules validate`. It needs neither a store nor a running service, so
// that it can run where rules are reviewed.
func validateCommand(p process) *cobra.Command {
	var f struct{ JSON bool }
	command := newCommand("rules validate", &f)
	command.Args = cobra.MinimumNArgs(1)
	load := settingFlags(p, command.Flags(), "ipv6_prefix", "envoy.merge_domains")
	command.RunE = func(_ *cobra.Command, args []string) error {
		loaded, err := load()
		if err != nil {
			return err
		}
		return validateRules(p.Out, args, f.JSON, loaded)
	}
	return command
}

// A validation is what `stint rules validate --json` prints of a file or folder: as the admin API's, without what would
// change.
type validation struct {
	Path string `json:"path"`
	adminapi.Validation
}

// validateRules says of each file or folder how many rules or limits it has, or what is wrong with
// them. Each path is judged by itself, and all are, whatever is wrong with the first. With --json
// the faults are in the output, and the exit code alone says that there are some.
func validateRules(out io.Writer, paths []string, asJSON bool, loaded config.Config) error {
	var faults []string
	all := []validation{}
	for _, path := range paths {
		validate := validateSet
		if texts, err := (rulefile.Texts{Path: path}).Read(); err == nil && slices.ContainsFunc(texts, isDomain) {
			validate = validateDomains
		}
		v, found, err := validate(path, loaded)
		if err != nil {
			v.Faults = ruleFaults(err)
			faults = append(faults, err.Error())
		}
		if all = append(all, validation{path, v}); asJSON || err != nil {
			continue
		}
		lines := append([]string{path + ": " + found}, v.Warnings...)
		if err := say(out, "%s\n", strings.Join(lines, "\nwarning: ")); err != nil {
			return err
		}
	}
	if asJSON {
		if err := sayJSON(out, all, ""); err != nil {
			return err
		}
	}
	switch {
	case len(faults) == 0:
		return nil
	case asJSON:
		return exit{code: exitUsage}
	default:
		return misused("%s", strings.Join(faults, "\n"))
	}
}

// validateSet says of a file or a folder of rules how many there are, or what is wrong with them.
func validateSet(path string, loaded config.Config) (v adminapi.Validation, found string, err error) {
	set, err := rulefile.ReadSet(path, rules.Options{IPv6Prefix: loaded.ClientIP.IPv6Prefix, Review: true})
	if err != nil {
		return v, "", err
	}
	for _, rule := range set.Rules() {
		if !rule.Disabled {
			v.Enabled++
		}
	}
	v.Valid, v.Rules, v.Warnings = true, set.Len(), ruleWarnings(set, loaded.Store.Clustered())
	return v, fmt.Sprintf("%s, %d enabled", counted(v.Rules, "rule"), v.Enabled), nil
}

// ruleWarnings tell of the rules of a set what may be other than was meant.
func ruleWarnings(set *rules.Set, clustered bool) (warnings []string) {
	for _, rule := range set.Rules() {
		for _, warning := range set.Warnings(rule.ID, clustered) {
			warnings = append(warnings, "rule "+rule.ID+": "+warning.String())
		}
	}
	return warnings
}

// isDomain reports whether a file has domains of Envoy's rate limit service rather than rules.
// Rules and domains have different top levels, which tells them apart whatever the file's name.
func isDomain(text rulefile.Text) bool { return domains.Recognize(text.Data) }

// validateDomains says of the domains of Envoy's rate limit service how many limits they have, and what
// has no effect, or what is wrong with them.
func validateDomains(path string, loaded config.Config) (v adminapi.Validation, found string, err error) {
	texts, err := rulefile.Texts{Path: path}.Read()
	if err != nil {
		return v, "", err
	}
	list, warnings, err := domainsource.Read(texts)
	if err != nil {
		return v, "", err
	}
	if faults := domains.Validate(list, loaded.Envoy.Merge); len(faults) > 0 {
		return v, "", errors.New(strings.Join(faults, "\n"))
	}
	for _, d := range list {
		v.Rules += domains.Count(d.Descriptors)
	}
	// The service has the accounting, not the files, so the warning says of which it is.
	v.Valid, v.Enabled, v.Warnings = true, v.Rules, append(warnings, domains.Joined(list)...)
	return v, counted(len(list), "domain") + ", " + counted(v.Rules, "limit"), nil
}

// ruleFaults are everything that is wrong with rules. Faults that have no place in a text are of
// the document as a whole.
func ruleFaults(err error) []adminapi.RuleFault {
	var faults document.Faults
	if !errors.As(err, &faults) {
		return []adminapi.RuleFault{{Detail: prefix.Trim(err.Error())}}
	}
	return rulesapi.RuleFaults(faults)
}

// importCommand is `stint rules import`. It reads another program's documents and changes nothing,
// neither there nor in a service.
func importCommand(p process) *cobra.Command {
	command := newCommand("rules import")
	command.Args = cobra.ExactArgs(1)
	command.RunE = func(command *cobra.Command, args []string) error {
		list, notes, err := mongo.Import(command.Context(), args[0])
		if errors.Is(err, stint.ErrInvalid) {
			return misused("%v", err)
		}
		if err != nil {
			return err
		}
		text, err := rulestore.Encode(list)
		if err != nil {
			return err
		}
		for _, note := range notes {
			p.tell(note)
		}
		return say(p.Out, "%s", text)
	}
	return command
}
