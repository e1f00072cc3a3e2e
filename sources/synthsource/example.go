package synthsource

import (
	"strconv"

	"github.com/monolith-go/monolith/internal/example"
)

// Example is one impression: what a model may see, the click and the minutes watched after it, and what both were expected
// to be. Numbers that stand for something (user, item, category, audience) count from 1.
type Example struct {
	// Index is the example's number in the stream, from 0.
	Index int64
	// Time is the event time in microseconds since 1970; it grows with the index.
	Time int64

	User, Item, Category, Audience int64
	// Hour is that of the user's local time, 0 to 23.
	Hour    int64
	Country Country
	Device  Device
	// History holds 0 to 4 categories the user has seen before, in no order; one may occur more than once.
	History []int64
	// Price is the item's price on a scale of mean 0 and standard deviation 1.
	Price float32

	// Click is a label. Minutes is another: how long the user watched after the click, above 0; without a click it is 0 and not
	// a part of the record.
	Click   bool
	Minutes float32
	// Probability is the chance that Click had of being true, in (0, 1). No model can rank better than it. It is not a
	// part of the record.
	Probability float64
	// ExpectedMinutes is the mean that Minutes was drawn about, or would have been had there been a click; above 0. No model can
	// have a smaller mean squared error than it. It is not a part of the record.
	ExpectedMinutes float64
}

// Device is what the user looks at; its string is the feature's value.
type Device uint8

// The devices.
const (
	Phone Device = iota
	Desktop
	Tablet
	TV
	numDevices = 4
)

// String implements [fmt.Stringer].
func (d Device) String() string {
	return [...]string{"phone", "desktop", "tablet", "tv"}[d%numDevices]
}

// effect is what the device adds to the log odds of a click.
func (d Device) effect() float64 { return [...]float64{0.1, -0.1, 0.05, -0.4}[d%numDevices] }

// deviceOf returns the device at u in [0, 1): 55 % phones, 30 % desktops, 10 % tablets, 5 % television sets.
func deviceOf(u float64) Device {
	switch {
	case u < 0.55:
		return Phone
	case u < 0.85:
		return Desktop
	case u < 0.95:
		return Tablet
	default:
		return TV
	}
}

// Country is where the user lives; its string, an ISO 3166 code, is the feature's value. Countries lie two hours apart
// around the world, in the order of their numbers.
type Country uint8

const numCountries = 12

// String implements [fmt.Stringer].
func (c Country) String() string {
	return [numCountries]string{"gb", "eg", "sa", "pk", "bd", "cn", "au", "nz", "us", "mx", "br", "cv"}[c%numCountries]
}

// hoursAhead is the country's distance from UTC.
func (c Country) hoursAhead() int64 { return 2 * int64(c) }

// The names of the features in a record, in the order in which they are written.
const (
	FeatureAudience = "audience" // int64
	FeatureCategory = "category" // int64
	FeatureClick    = "click"    // float, 0 or 1: a label
	FeatureCountry  = "country"  // bytes, see [Country]
	FeatureDevice   = "device"   // bytes, see [Device]
	FeatureHistory  = "history"  // list of 0 to 4 int64
	FeatureHour     = "hour"     // int64
	FeatureItem     = "item"     // int64
	FeatureMinutes  = "minutes"  // float above 0, after a click: the other label
	FeaturePrice    = "price"    // float
	FeatureUser     = "user"     // int64
)

// AppendTFExample appends the example as a serialized tf.Example without what was expected of it. Equal examples give equal
// bytes. It may be called from several goroutines at once.
func (ex *Example) AppendTFExample(dst []byte) []byte {
	return ex.encode(new(example.Encoder), dst)
}

// encode appends the record to dst through the buffer of enc.
func (ex *Example) encode(enc *example.Encoder, dst []byte) []byte {
	enc.Int64s(FeatureAudience, ex.Audience)
	enc.Int64s(FeatureCategory, ex.Category)
	click := float32(0)
	if ex.Click {
		click = 1
	}
	enc.Floats(FeatureClick, click)
	enc.Strings(FeatureCountry, ex.Country.String())
	enc.Strings(FeatureDevice, ex.Device.String())
	enc.Int64s(FeatureHistory, ex.History...)
	enc.Int64s(FeatureHour, ex.Hour)
	enc.Int64s(FeatureItem, ex.Item)
	if ex.Click {
		enc.Floats(FeatureMinutes, ex.Minutes)
	}
	enc.Floats(FeaturePrice, ex.Price)
	enc.Int64s(FeatureUser, ex.User)
	return enc.Append(dst)
}

// AppendKey appends the record's key: the user's number in decimal digits.
func (ex *Example) AppendKey(dst []byte) []byte { return strconv.AppendInt(dst, ex.User, 10) }
