package snapshot

// What the fuzz targets reach into.
var (
	DecodeManifest = decodeManifest
	ReadRows       = readRows
	ReadTensors    = readTensors
)

func (i *Info) Encode() ([]byte, error) { return i.encode() }
