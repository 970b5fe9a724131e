package rulesapi

import (
	"errors"

	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/rules/file"
	"github.com/stint-go/stint/rules/notation"
	"github.com/stint-go/stint/rules/store"
)

// document reads rules as files have them, and makes a set of them.
func (c *Call) document() (set *rules.Set, list []rules.Rule, err error) {
	err = c.parse(file.MaxBytes, ruleBody, func(source string, text []byte) (fault error) {
		set, list, fault = file.ParseSet(source, text, rules.Options{IPv6Prefix: c.api.config.IPv6Prefix})
		return fault
	})
	return set, list, err
}

// replaceAll puts a document's rules in the place of all.
func (c *Call) replaceAll() error {
	if err := c.query.only("comment"); err != nil {
		return err
	}
	asked, err := conditionsOf(c.r.Header)
	if err != nil {
		return err
	}
	// The registry tells whether rules make sense, but not where they are in the document.
	_, list, err := c.document()
	if err != nil {
		return err
	}
	v, err := c.edit("replace all rules", func(d *store.Draft) error {
		if err := holdList(asked, d); err != nil {
			return err
		}
		d.Replace(list)
		return nil
	})
	if err != nil {
		return err
	}
	return c.edited(&v)
}

// validate says whether a document's rules could be enforced.
func (c *Call) validate() error {
	if err := c.query.only(); err != nil {
		return err
	}
	set, list, err := c.document()
	var faults notation.Faults
	if errors.As(err, &faults) {
		return c.answer(invalidRules(list, faults))
	}
	if err != nil {
		return err
	}
	changes := changesOf(set.ChangesFrom(c.api.config.Limiter.Set()))
	validation := api.Validation{Valid: true, Rules: set.Len(), RuleChanges: &changes}
	for i := range list {
		if !list[i].Disabled {
			validation.Enabled++
		}
	}
	return c.answer(validation)
}

// invalidRules says what is wrong.
func invalidRules(list []rules.Rule, faults notation.Faults) api.Validation {
	validation := api.Validation{Rules: len(list)}
	for i, fault := range faults {
		if i == maxFaults {
			break
		}
		validation.Faults = append(validation.Faults, api.RuleFault{
			Line: fault.Position.Line, Column: fault.Position.Column, Rule: fault.Rule, Detail: fault.Message,
		})
	}
	return validation
}

// maxFaults bounds how many faults are told.
const maxFaults = 1000
