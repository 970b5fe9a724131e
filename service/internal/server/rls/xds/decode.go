package xds

import (
	"fmt"

	configs "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/clip"
	"github.com/stint-go/stint/service/internal/server/rls/domains"
)

// The fields of a descriptor that the Go types don't have yet.
const (
	fieldQuotaMode protowire.Number = 7
	fieldMetadata  protowire.Number = 8
)

// decode makes a domain of a resource. From says where the domain came from, in messages: the
// resource's name, cut to a sensible length.
func decode(resource *anypb.Any) (*domains.Domain, error) {
	given := &configs.RateLimitConfig{}
	if err := resource.UnmarshalTo(given); err != nil {
		return nil, fmt.Errorf("%w: %w", stint.Invalid("a resource", clip.To(maxName, resource.GetTypeUrl()), TypeURL), err)
	}
	d := &decoder{}
	domain := &domains.Domain{
		Name: given.Domain, From: "xds " + clip.To(maxName, given.Name), Descriptors: d.list(given.Descriptors, 1),
	}
	return domain, d.err
}

// A decoder makes descriptors of those of the protocol. The first fault of a kind replaces the
// others: a resource is refused as a whole, with one reason.
type decoder struct {
	descriptors int
	err         error
}

// list makes the descriptors of one level, and of those below. Depth and number are bounded as they
// are for files.
func (d *decoder) list(given []*configs.RateLimitDescriptor, depth int) []domains.Descriptor {
	if d.descriptors += len(given); depth > domains.MaxDepth || d.descriptors > domains.MaxDescriptors {
		allowed := fmt.Sprintf("%d in all and %d levels at most", domains.MaxDescriptors, domains.MaxDepth)
		d.err = stint.Invalid("descriptors", d.descriptors, allowed)
		return nil
	}
	list := make([]domains.Descriptor, len(given))
	for i, one := range given {
		to := &list[i]
		to.Key, to.Value = one.GetKey(), one.GetValue()
		to.ShadowMode, to.DetailedMetric = one.GetShadowMode(), one.GetDetailedMetric()
		d.newer(one.ProtoReflect().GetUnknown(), to)
		if limit := one.GetRateLimit(); limit != nil {
			to.RateLimit = &domains.RateLimit{
				Name: limit.Name, RequestsPerUnit: limit.RequestsPerUnit, Unit: unitOf(limit.Unit), Unlimited: limit.Unlimited,
			}
			for _, other := range limit.Replaces {
				to.RateLimit.Replaces = append(to.RateLimit.Replaces, other.GetName())
			}
		}
		to.Descriptors = d.list(one.GetDescriptors(), depth+1)
	}
	return list
}

// unitOf is a unit by its number, which is the same in all of Envoy's protocols.
func unitOf(given configs.RateLimitUnit) domains.Unit {
	if unit := domains.Unit(given); given > 0 && given <= configs.RateLimitUnit(domains.Week) {
		return unit
	}
	return domains.UnitUnknown
}

// newer reads fields that the Go types don't have. Unknown fields are read as the wire has them: a
// tag, which is the field's number and type, and a value. Fields of yet other numbers are skipped.
func (d *decoder) newer(fields protoreflect.RawFields, to *domains.Descriptor) {
	for len(fields) > 0 {
		number, kind, n := protowire.ConsumeTag(fields)
		if n < 0 {
			return
		}
		fields = fields[n:]
		switch {
		case number == fieldQuotaMode && kind == protowire.VarintType:
			value, _ := protowire.ConsumeVarint(fields)
			to.QuotaMode = value != 0
		case number == fieldMetadata && kind == protowire.BytesType:
			text, _ := protowire.ConsumeBytes(fields)
			metadata := &structpb.Struct{}
			if err := proto.Unmarshal(text, metadata); err != nil {
				d.err = fmt.Errorf("the metadata of %s: %w", clip.To(maxName, to.Key), err)
				return
			}
			to.Metadata = metadata.AsMap()
		}
		if n = protowire.ConsumeFieldValue(number, kind, fields); n < 0 {
			return
		}
		fields = fields[n:]
	}
}
