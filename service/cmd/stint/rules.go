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
	options := rules.Options{IPv6Prefix: loaded.ClientIP.IPv6Prefix, Review: true}
	var faults []string
	all := []validation{}
	for _, path := range paths {
		if texts, err := (rulefile.Texts{Path: path}).Read(); err == nil && slices.ContainsFunc(texts, isDomain) {
			v, said, err := validateDomains(path, texts, loaded.Envoy.Merge)
			if all = append(all, v); err != nil {
				faults = append(faults, err.Error())
			} else if !asJSON {
				if err := say(out, "%s", said); err != nil {
					return err
				}
			}
			continue
		}
		set, err := rulefile.ReadSet(path, options)
		if err != nil {
			all = append(all, validation{Path: path, Validation: adminapi.Validation{Faults: ruleFaults(err)}})
			faults = append(faults, err.Error())
			continue
		}
		enabled := 0
		for _, rule := range set.Rules() {
			if !rule.Disabled {
				enabled++
			}
		}
		warnings := ruleWarnings(set, loaded.Store.Clustered())
		all = append(all, validation{
			Path: path, Validation: adminapi.Validation{Valid: true, Rules: set.Len(), Enabled: enabled, Warnings: warnings},
		})
		if asJSON {
			continue
		}
		said := fmt.Sprintf("%s: %s, %d enabled\n", path, counted(set.Len(), "rule"), enabled)
		for _, warning := range warnings {
			said += "warning: " + warning + "\n"
		}
		if err := say(out, "%s", said); err != nil {
			return err
		}
	}
	if asJSON {
		if err := sayJSON(out, all, ""); err != nil {
			return err
		}
	}
	if len(faults) > 0 && asJSON {
		return exit{code: exitUsage}
	}
	if len(faults) > 0 {
		return misused("%s", strings.Join(faults, "\n"))
	}
	return nil
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
func validateDomains(path string, texts []rulefile.Text, merge bool) (v validation, said string, err error) {
	v.Path = path
	list, warnings, err := domainsource.Read(texts)
	if err == nil {
		if faults := domains.Validate(list, merge); len(faults) > 0 {
			err = errors.New(strings.Join(faults, "\n"))
		}
	}
	if err != nil {
		v.Faults = ruleFaults(err)
		return v, "", err
	}
	limits := 0
	for _, d := range list {
		limits += domains.Count(d.Descriptors)
	}
	// The service has the accounting, not the files, so the warning says of which it is.
	warnings = append(warnings, domains.Joined(list)...)
	v.Valid, v.Rules, v.Enabled, v.Warnings = true, limits, limits, warnings
	said = fmt.Sprintf("%s: %s, %s\n", path, counted(len(list), "domain"), counted(limits, "limit"))
	for _, warning := range warnings {
		said += "warning: " + warning + "\n"
	}
	return v, said, nil
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
