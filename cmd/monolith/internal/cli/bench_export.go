package cli

func benchExport() benchmark {
	return benchmark{name: "export", short: "Measure writing and opening a native export", long: `Measure a native export of --rows (a million) rows of 17 weights: bytes a second beside a plain file of as many bytes, both synced; how often a second it is opened; and how much memory is
resident once each of its rows was asked for, of the bytes that ids and weights have. --dir is the disk that is measured.`}
}
