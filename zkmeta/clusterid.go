package zkmeta

import "errors"

// EncodeClusterID writes the data of /cluster/id.
func EncodeClusterID(id string) []byte {
	return encodeObject(func(b *builder) {
		b.text("version", "1")
		b.text("id", id)
	})
}

// DecodeClusterID reads the data of /cluster/id. Kafka looks at nothing but the
// id, which may be any text: it came from a random UUID in every cluster whose
// id nobody made up.
func DecodeClusterID(data []byte) (string, error) {
	var id string
	err := decodeObject(ClusterIDPath, data, func(o object) { id = o.text("id") })
	if err == nil && id == "" {
		err = badZnode(ClusterIDPath, errors.New("the id is empty"))
	}
	return id, err
}
