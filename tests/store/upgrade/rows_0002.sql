INSERT INTO sandboxd.regions (region, socket, secret) VALUES ('here-1', '/nowhere/gateway.sock', '\x7631');
INSERT INTO sandboxd.region_access (account_id, region) VALUES ('01ACCOUNT00000000000000000', 'here-1');
INSERT INTO sandboxd.storage_backends (backend_id, account_id, region, kind, endpoint, bucket, access_key, secret_key)
    VALUES ('01BACKEND00000000000000000', '01ACCOUNT00000000000000000', 'here-1', 's3', 'https://s3.example', 'b',
            '\x763101', '\x763102');
INSERT INTO sandboxd.registry_credentials (registry_id, account_id, host, username, password)
    VALUES ('01REGISTRY0000000000000000', '01ACCOUNT00000000000000000', 'registry.example', 'ann', '\x763103');
INSERT INTO sandboxd.volumes (account_id, region, volume_name, size_mb)
    VALUES ('01ACCOUNT00000000000000000', 'here-1', 'sbvol-one', 1024);
